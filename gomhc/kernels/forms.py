"""What a compiled map computes, as text: `go:4:2`, `sinkhorn-v4:4:20:1e-06`, `kronecker:8:2 go:4:2 sinkhorn:2:20`.

Kind, streams, a whole number (expressivity, iterations or parts, by kind) and a real one (what is added to sums, or a
bound). The parts of a composite follow it. Text is what torch's operators take, and what is read in an exported
program. `parsed` makes of it what C++ takes, and refuses everything else; the functions that write forms give None
where nothing is compiled.

d = num_streams, s = expressivity, n = d * s, p = number of logits
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

LARGEST = 64
"""Largest number of streams that compiled operations take (tasks.h)."""
LARGEST_ROTATION = 192
"""Largest number of rows of a rotation (tasks.h)."""
MOST_PARTS = 64
"""Most parts of a composite, those of its parts among them (tasks.h)."""
MOST_ITERATIONS = 1000
"""Most iterations of Sinkhorn: backward keeps what each of them divides by."""
MOST_PERMUTED = 8
"""Most streams whose permutations are listed."""
QUATERNION = 4
"""Streams that quaternions turn."""

NUM_LOGITS: dict[str, Callable[[int, int], int]] = {
    "go": lambda d, s: d * s * (d * s - 1) // 2,
    "go-square": lambda d, s: (d * s) ** 2,
    "go-unitary": lambda d, s: (d * s) ** 2,
    "go-householder": lambda d, s: d * s * (d * s - 1) // 2,
    "go-givens": lambda d, s: d * s * (d * s - 1) // 2,
    "sinkhorn": lambda d, _: d * d,
    "sinkhorn-linear": lambda d, _: d * d,
    "sinkhorn-v4": lambda d, _: d * d,
    "permutations": lambda d, _: math.factorial(d),
    "transportation": lambda d, _: (d - 1) ** 2,
    "identity": lambda d, _: 0,
    "rows": lambda d, _: d * d,
    "circulant": lambda d, _: d,
    "off-diagonal": lambda d, _: d * (d - 1),
    "orthogonal": lambda d, _: d * (d - 1) // 2,
    "quaternions": lambda *_: 8,
    "spectral-sphere": lambda d, _: (d - 1) ** 2,
    "projection": lambda d, _: d * d,
}
"""Kind -> the number of logits of d streams and its number."""
COMPOSITES = ("kronecker", "average")
KINDS = (*NUM_LOGITS, *COMPOSITES)
"""All kinds, in the order of tasks.h."""


class Part(ctypes.Structure):
    """A part of a map, as in native/tasks.h."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("d", ctypes.c_int),
        ("number", ctypes.c_int),
        ("p", ctypes.c_int),
        ("real", ctypes.c_float),
    )


class Form(NamedTuple):
    """A map that C++ takes."""

    num_streams: int
    num_logits: int
    parts: Any
    """Array of `Part`, the whole first."""


def single(kind: str, num_streams: int, number: int = 1, real: float = 0.0) -> str | None:
    """The form of a map that has no parts, or None where it is too large."""
    return f"{kind}:{num_streams}:{number}:{real}" if _fits(kind, num_streams, number) else None


def composite(kind: str, num_streams: int, parts: Sequence[str | None]) -> str | None:
    """The form of a map that is made of others, or None where one of them has none or it is too large."""
    known = [part for part in parts if part is not None]
    text = " ".join([f"{kind}:{num_streams}:{len(parts)}:0.0", *known])
    fits = len(known) == len(parts) and num_streams <= LARGEST and text.count(" ") < MOST_PARTS
    return text if fits else None


def _fits(kind: str, d: int, number: int) -> bool:
    if not (1 <= d <= LARGEST and 1 <= number <= MOST_ITERATIONS):
        return False
    if kind.startswith("go"):
        return d * number <= LARGEST_ROTATION
    return {"permutations": d <= MOST_PERMUTED, "quaternions": d == QUATERNION}.get(kind, True)


@lru_cache(maxsize=1024)
def parsed(form: str) -> Form:
    """What C++ takes. Everything that it relies on is checked here."""
    try:
        fields = [_fields(*text.split(":")) for text in form.split(" ")]
    except (ValueError, TypeError, OverflowError):
        raise _wrong(form) from None
    parts: Any = (Part * len(fields))(*(Part(*values) for values in fields))
    if len(fields) > MOST_PARTS or _measured(parts, 0, form) != len(fields):
        raise _wrong(form)
    return Form(parts[0].d, parts[0].p, parts)


def _fields(kind: str, d: str, number: str, real: str) -> tuple[int, int, int, int, float]:
    sizes = int(d), int(number)
    if not all(0 <= size <= MOST_ITERATIONS for size in sizes):  # ctypes would take them modulo 2^32
        raise ValueError
    return KINDS.index(kind), *sizes, 0, float(real)


def _measured(parts: Any, place: int, form: str) -> int:
    """Set the number of logits of the part at this place and of those that belong to it, and check their sizes.

    Returns the position after them.
    """
    if place >= len(parts):
        raise _wrong(form)
    part, behind = parts[place], place + 1
    kind = KINDS[part.kind]
    if kind not in COMPOSITES:
        if not _fits(kind, part.d, part.number):
            raise _wrong(form)
        part.p = NUM_LOGITS[kind](part.d, part.number)
        return behind
    streams, logits = [], 0
    for _ in range(part.number):
        streams.append(parts[behind].d if behind < len(parts) else 0)
        child, behind = behind, _measured(parts, behind, form)
        logits += parts[child].p
    part.p = logits + (part.number if kind == "average" else 0)
    right = math.prod(streams) == part.d if kind == "kronecker" else {*streams} == {part.d}
    if not right or not 1 <= part.d <= LARGEST:
        raise _wrong(form)
    return behind


def _wrong(form: str) -> ValueError:
    return ValueError(
        f"the compiled map takes 1 to {LARGEST} streams, rotations of up to {LARGEST_ROTATION} rows and "
        f"{', '.join(KINDS)} in the form kind:num_streams:number:real, got {form!r}; call the mixing itself, which "
        f"takes any size"
    )
