"""Which version of an operation runs here? The fastest that is there, unless one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from gomhc.kernels.library import instruction_set, library

Backend = Literal["native", "triton", "batched", "plain"]
"""C++ on the CPU; Triton on CUDA; pure torch with the batch innermost; pure torch as the equations are written."""

# Found out once, here, and not where torch.compile would trace it.
COMPILED: dict[str, Backend] = {}
"""Kind of device -> the compiled version that its tensors take."""
if library() is not None:
    COMPILED["cpu"] = "native"
if find_spec("triton") is not None:
    COMPILED["cuda"] = "triton"

_forced: Backend | None = None


def available() -> tuple[Backend, ...]:
    """The versions that can run on this machine, fastest first."""
    devices = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
    compiled = {version for device, version in COMPILED.items() if device in devices}
    return tuple(name for name in get_args(Backend) if name in compiled | {"batched", "plain"})


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Inside, every operation runs in this version where it has one: `with gomhc.kernels.use("plain"): ...`."""
    if backend not in available():
        raise ValueError(f"kernels {backend!r} are not available here, only {', '.join(available())}; see gomhc doctor")
    global _forced
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def chosen(*tensors: Tensor) -> Backend:
    """The version for these tensors. Float64 is plain: accuracy is what it is for. So are torch.func's transforms."""
    if _forced is not None:
        return _forced
    if any(tensor.dtype == torch.float64 for tensor in tensors) or torch._C._are_functorch_transforms_active():
        return "plain"
    return COMPILED.get(tensors[0].device.type, "batched")


def reasons() -> dict[Backend, str]:
    """Each version and why it is used or not, in words."""
    if library() is not None:
        native = f"active on the CPU, float32 ({instruction_set()} instructions)"
    else:
        native = "not built: install a C++ compiler and install gomhc again"
    if not torch.cuda.is_available():
        triton = "not used: torch sees no CUDA device"
    elif "cuda" not in COMPILED:
        triton = "not used: the package triton is not installed"
    else:
        triton = "active on CUDA"
    return {
        "native": native,
        "triton": triton,
        "batched": "active where neither of those is",
        "plain": "the oracle; active for float64 and in torch.func, or by gomhc.kernels.use('plain')",
    }
