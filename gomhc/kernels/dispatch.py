"""The choice of the version of an operation: the fastest one for the tensors at hand, unless another is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock, get_ident
from typing import Literal, get_args

import torch
from torch import Tensor

from gomhc.kernels.library import instruction_set, library, search
from gomhc.kernels.transforms import is_transformed, is_unobserved

Backend = Literal["native", "triton", "batched", "plain"]
"""C++ on the CPU; Triton on CUDA; pure torch with the batch innermost; pure torch as the equations are written."""

# Looked up once, here, and not where torch.compile would trace it.
COMPILED: dict[str, Backend] = {}
"""Kind of device -> the compiled version that its tensors take."""
if library() is not None:
    COMPILED["cpu"] = "native"
if find_spec("triton") is not None:
    COMPILED["cuda"] = "triton"
INTERPRETED = "cuda" in COMPILED and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton's interpreter runs its kernels, on any device, as it was asked to before gomhc was imported."""

_lock = Lock()
_forced: dict[int, Backend] = {}
"""Thread -> the version that was asked for in it."""
_forced_last: Backend | None = None
"""The last of them. torch.compile can see when a global changes, but not which thread it runs in."""


def available() -> tuple[Backend, ...]:
    """Return the versions that can run on this machine, fastest first."""
    devices = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
    compiled = {version for device, version in COMPILED.items() if device in devices or INTERPRETED}
    return tuple(name for name in get_args(Backend) if name in compiled | {"batched", "plain"})


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Use one version of the kernels for every operation of this thread, inside a `with` block.

    If this version does not support the device or dtype of the tensors, pure torch is used. Code under torch.compile
    uses the version that was requested last in any thread. On CUDA, backward runs in its own threads, so operations
    that are computed again there (`recompute`) use the default version. With TRITON_INTERPRET=1, ``"triton"`` also
    takes tensors on the CPU; Triton's interpreter is slow and meant for tests.

    Args:
        backend: one of `available()`.

    Example::

        with gomhc.kernels.use("plain"):
            matrix = go(logits)
    """
    if backend not in available():
        raise ValueError(f"kernels {backend!r} are not available here, only {', '.join(available())}; see gomhc doctor")
    thread = get_ident()
    before = _forced.get(thread)
    _force(thread, backend)
    try:
        yield
    finally:
        _force(thread, before)


def _force(thread: int, backend: Backend | None) -> None:
    global _forced_last
    with _lock:
        _forced.pop(thread, None)
        if backend is not None:
            _forced[thread] = backend
        _forced_last = next(reversed(_forced.values()), None)


def chosen(*tensors: Tensor) -> Backend:
    """The version for these tensors. Float64 is plain: accuracy is what it is for. So are torch.func's transforms."""
    if torch.float64 in [tensor.dtype for tensor in tensors] or is_transformed(*tensors):
        return "plain"
    compiled = COMPILED.get(tensors[0].device.type, "batched")
    forced = _forced_last if torch.compiler.is_compiling() else asked_for()
    if forced is None:
        return compiled
    fits = forced in (compiled, "batched", "plain") or (forced == "triton" and INTERPRETED)
    return forced if fits else "batched"


def is_direct() -> bool:
    """Whether C++ may be called without torch's operators (`direct.py`), should the tensors fit."""
    return is_unobserved() and not _forced and COMPILED.get("cpu") == "native"


def asked_for() -> Backend | None:
    """The version that `use` asks for in this thread."""
    return _forced.get(get_ident())


def reasons() -> dict[Backend, str]:
    """Return a sentence for each version that says whether it is used, and why."""
    if library() is not None:
        native = f"active on the CPU, float32 and half precision ({instruction_set()} instructions)"
    else:
        native = search().problem
    if INTERPRETED:
        triton = "interpreted, because TRITON_INTERPRET=1 is set; gomhc.kernels.use('triton') uses it on the CPU too"
    elif not torch.cuda.is_available():
        triton = "not used: torch sees no CUDA device"
    elif "cuda" not in COMPILED:
        triton = "not used: the package triton is not installed"
    else:
        triton = "active on CUDA"
    return {
        "native": native,
        "triton": triton,
        "batched": "pure torch; used if neither native nor triton is",
        "plain": "the reference in pure torch; used for float64, in torch.func, and with gomhc.kernels.use('plain')",
    }
