"""The launch of a kernel, by the interpreter on the CPU where TRITON_INTERPRET=1 is set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

OPTIONS = {"enable_fp_fusion": True}
"""Options of the compiler for every kernel: a product and a sum may be rounded once, whatever is Triton's default."""


@dataclass(frozen=True)
class Launch:
    """A kernel and what it is called with."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    """Tensors and numbers."""
    sizes: dict[str, Any]
    """Constants that the kernel is compiled for."""
    num_warps: int


_record: ContextVar[list[Launch] | None] = ContextVar("_record", default=None)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **sizes: Any) -> None:
    """Run on the device of the tensors, which need not be the current one; results are contiguous as they are."""
    record = _record.get()
    if record is not None:
        record.append(Launch(kernel, grid, arguments, sizes, num_warps))
        return
    if 0 in grid:
        return
    contiguous = [value.contiguous() if isinstance(value, Tensor) else value for value in arguments]
    with torch.cuda.device_of(contiguous[0]):
        kernel[grid](*contiguous, **sizes, num_warps=num_warps, **OPTIONS)


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect launches instead of running them: what they compute is left undefined."""
    record: list[Launch] = []
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)
