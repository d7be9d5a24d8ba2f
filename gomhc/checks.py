"""Checks of values that a person has chosen: a `ValueError` says what was expected and what came."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

LARGEST_WHOLE = 2**63 - 1
"""The largest whole number that torch and numpy take."""


def require_whole(name: str, value: Any, least: int, most: int = LARGEST_WHOLE) -> None:
    """`value` counts something: a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")


def require_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> None:
    """`value` is a finite number inside these bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not is_number or not (above < value < below and least <= value <= most):
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("above", above), ("at least", least), ("at most", most), ("below", below))
            if math.isfinite(bound)
        ]
        raise ValueError(f"{name} must be a finite number{', ' * bool(bounds)}{' and '.join(bounds)}; got {value!r}")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """`value` is one of these words."""
    words = tuple(choices)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got {value!r}")


def require_text(name: str, value: Any) -> None:
    """`value` is text that can be written to a file."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{name} must be printable text, got {value!r}")
