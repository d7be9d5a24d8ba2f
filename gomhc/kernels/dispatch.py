"""Which version of an operation runs here? The fastest that is there, unless one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch

from gomhc.kernels.library import instruction_set, library

Backend = Literal["native", "batched", "plain"]
"""C++; pure torch with the batch innermost; pure torch as the equations are written."""

_forced: Backend | None = None


def available() -> list[Backend]:
    """The versions that can run on this machine, fastest first."""
    return [name for name in get_args(Backend) if name != "native" or library() is not None]


@contextmanager
def use(backend: Backend) -> Iterator[None]:
    """Inside, every operation runs in this version: `with gomhc.kernels.use("plain"): ...`."""
    if backend not in available():
        raise ValueError(f"kernels {backend!r} are not available here, only {', '.join(available())}; see gomhc doctor")
    global _forced
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def chosen(*tensors: torch.Tensor) -> Backend:
    """The version for these tensors. Float64 is plain: accuracy is what it is for. So are torch.func's transforms."""
    if _forced is not None:
        return _forced
    if any(tensor.dtype == torch.float64 for tensor in tensors) or torch._C._are_functorch_transforms_active():
        return "plain"
    if tensors[0].device.type == "cpu" and library() is not None:
        return "native"
    return "batched"


def reasons() -> dict[str, str]:
    """Each version and why it is used or not, in words."""
    native = f"active on the CPU for float32 ({instruction_set()})" if library() is not None else "not built"
    return {
        "native": native if library() is not None else f"{native}: install a C++ compiler and reinstall gomhc",
        "batched": "active where native is not" if library() is not None else "active",
        "plain": "the oracle; for float64 and torch.func, or by gomhc.kernels.use('plain')",
    }
