"""Parts that kernels share: blocks of small matrices, float32 whatever the dtype in memory, saturated logits.

Triton cannot index registers by a variable, so a row of a matrix is a masked sum. `no_type_check` keeps the shape
checks of the tests off what Triton compiles from its source.
"""

from __future__ import annotations

from typing import no_type_check

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from gomhc.kernels.plain_map import SATURATION as LARGEST_LOGIT

SATURATION: tl.constexpr = tl.constexpr(LARGEST_LOGIT)


@triton.jit
@no_type_check
def saturated(value):
    """Larger logits count as SATURATION; NaN stays NaN."""
    value = tl.where(value > SATURATION, SATURATION, value)
    return tl.where(value < -SATURATION, -SATURATION, value)


@triton.jit
@no_type_check
def load_float32(pointer, mask):
    """In float32, zeros where masked."""
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def matrix_indices(padded: tl.constexpr):
    """Row and column of the elements of a matrix, to be broadcast."""
    index = tl.arange(0, padded)
    return index[None, :, None], index[None, None, :]


@triton.jit
@no_type_check
def row_of(m, t):
    """Row t of each matrix."""
    row, _ = matrix_indices(m.shape[2])
    return tl.sum(tl.where(row == t, m, 0.0), axis=1)


@triton.jit
@no_type_check
def column_of(m, t):
    """Column t of each matrix."""
    _, column = matrix_indices(m.shape[2])
    return tl.sum(tl.where(column == t, m, 0.0), axis=2)
