r"""The go-mHC map in Triton, in float64 with pivots.

    K = (I + A)^{-1},    Q = 2K - I,    B_ij = (1/s) ||Q_ij||_F^2

A program holds a block of matrices. Sizes are padded to powers of two, as Triton wants them, and masked.
d = num_streams, s = expressivity, n = d * s, p = n (n - 1) / 2, N = number of matrices
"""

from __future__ import annotations

from typing import Any, no_type_check

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.triton.launch import launch
from gomhc.kernels.triton.tiles import SATURATION, column_of, matrix_indices, row_of, saturated

MATRIX_ELEMENTS = 512
"""Elements of all padded matrices of a program, where they are smaller: four float64 a thread."""
FORWARD_WARPS, BACKWARD_WARPS = {32: 8, 64: 16}, {32: 4, 64: 16}
"""Padded size -> warps of a program, else four. So many that no GPU spills: `gomhc doctor --gpu --compile-only`."""


def orthostochastic_forward(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(N, d, d) doubly stochastic matrices of (N, p) logits, computed in float64."""
    matrix = logits.new_empty(len(logits), num_streams, num_streams)
    _launch_map(_orthostochastic_forward, logits, matrix, num_streams=num_streams, expressivity=expressivity)
    return matrix


def orthostochastic_backward(logits: Tensor, grad: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(N, p) gradients of the logits, given (N, d, d) of the matrices."""
    grad_logits = logits.new_empty(logits.shape)
    sizes = {"num_streams": num_streams, "expressivity": expressivity}
    _launch_map(_orthostochastic_backward, logits, grad, grad_logits, **sizes)
    return grad_logits


def _launch_map(kernel: Any, logits: Tensor, *others: Tensor, num_streams: int, expressivity: int) -> None:
    padded = max(2, triton.next_power_of_2(num_streams * expressivity))
    warps = FORWARD_WARPS if kernel is _orthostochastic_forward else BACKWARD_WARPS
    matrix_block = max(1, MATRIX_ELEMENTS // padded**2)
    sizes = {"num_streams": num_streams, "expressivity": expressivity}
    padding = {"padded": padded, "padded_streams": triton.next_power_of_2(num_streams), "matrix_block": matrix_block}
    num_matrices = len(logits)
    grid = (triton.cdiv(num_matrices, matrix_block),)
    launch(kernel, grid, logits, *others, num_matrices, **sizes, **padding, num_warps=warps.get(padded, 4))


@triton.jit
@no_type_check
def _orthostochastic_forward(
    logits,
    result,
    num_matrices,
    num_streams: tl.constexpr,
    expressivity: tl.constexpr,
    padded: tl.constexpr,
    padded_streams: tl.constexpr,
    matrix_block: tl.constexpr,
):
    """B_ij = (1/s) ||Q_ij||_F^2, a column of B at a time."""
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    q = _rotation(_resolvent(logits, matrix, num_matrices, num_streams * expressivity, padded))
    stream, index = tl.arange(0, padded_streams), tl.arange(0, padded)
    in_row = index[None, :] // expressivity == stream[:, None]
    stored = (matrix[:, None] < num_matrices) & (stream[None, :] < num_streams)
    for j in range(num_streams):
        in_column = (index // expressivity == j)[None, None, :]
        row_norms = tl.sum(tl.where(in_column, q * q, 0.0), axis=2)
        norms = tl.sum(tl.where(in_row[None, :, :], row_norms[:, None, :], 0.0), axis=2)
        offset = (matrix[:, None] * num_streams + stream[None, :]) * num_streams + j
        tl.store(result + offset, (norms / expressivity).to(tl.float32), mask=stored)


@triton.jit
@no_type_check
def _orthostochastic_backward(
    logits,
    grad,
    grad_logits,
    num_matrices,
    num_streams: tl.constexpr,
    expressivity: tl.constexpr,
    padded: tl.constexpr,
    padded_streams: tl.constexpr,
    matrix_block: tl.constexpr,
):
    """G_Q = (2/s) (G_B kron 1) Q,    G_A = -2 K^T G_Q K^T,    and logit ij is A_ij and -A_ji."""
    size: tl.constexpr = num_streams * expressivity
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    k = _resolvent(logits, matrix, num_matrices, size, padded)
    row, column = matrix_indices(padded)
    inside = (matrix[:, None, None] < num_matrices) & (row < size) & (column < size)
    block = (matrix[:, None, None] * num_streams + row // expressivity) * num_streams + column // expressivity
    grad_b = tl.load(grad + block, mask=inside, other=0.0).to(tl.float64)
    grad_q = 2.0 / expressivity * grad_b * _rotation(k)
    grad_a = -2.0 * _product_of_columns(_product_of_rows(k, grad_q, size), k, size)
    difference = grad_a - tl.permute(grad_a, (0, 2, 1))
    offset = matrix[:, None, None] * (size * (size - 1) // 2) + _position(row, column, size)
    given = _skew(logits, matrix, num_matrices, size, padded)
    difference = tl.where((given >= -SATURATION) & (given <= SATURATION), difference, 0.0)
    tl.store(grad_logits + offset, difference.to(tl.float32), mask=inside & (row < column))


@triton.jit
@no_type_check
def _resolvent(logits, matrix, num_matrices, size: tl.constexpr, padded: tl.constexpr):
    """K = (I + A)^{-1} in float64, the identity in the padding.

    Gauss-Jordan in place, with the largest pivot of each column: step t replaces m by m - u v^T, where u is column t,
    v is row t divided by the pivot, and what they hold at t makes row and column t those of the inverse. Rows that were
    exchanged on the way are columns of the inverse, which are exchanged back at the end.
    """
    row, column = matrix_indices(padded)
    m = tl.where(row == column, 1.0, saturated(_skew(logits, matrix, num_matrices, size, padded)))
    index = tl.arange(0, padded)[None, :]
    pivots = tl.zeros((m.shape[0], padded), tl.int32)
    for t in range(size):
        candidates = tl.where((index >= t) & (index < size), tl.abs(column_of(m, t)), -1.0)
        best = tl.argmax(candidates, axis=1)
        pivots = tl.where(index == t, best[:, None], pivots)
        here, there = row_of(m, t), tl.sum(tl.where(row == best[:, None, None], m, 0.0), axis=1)
        m = tl.where(row == best[:, None, None], here[:, None, :], m)
        m = tl.where(row == t, there[:, None, :], m)
        pivot = tl.sum(tl.where(index == t, there, 0.0), axis=1)
        v = tl.where(index == t, 1.0, there) / pivot[:, None]
        u = tl.where(index == t, -1.0, column_of(m, t))
        m = tl.where((row == t) | (column == t), 0.0, m) - u[:, :, None] * v[:, None, :]
    for step in range(size):
        t = size - 1 - step
        best = tl.sum(tl.where(index == t, pivots, 0), axis=1)
        here, there = column_of(m, t), tl.sum(tl.where(column == best[:, None, None], m, 0.0), axis=2)
        m = tl.where(column == best[:, None, None], here[:, :, None], m)
        m = tl.where(column == t, there[:, :, None], m)
    return m


@triton.jit
@no_type_check
def _skew(logits, matrix, num_matrices, size: tl.constexpr, padded: tl.constexpr):
    """A in float64: logits above the diagonal, their negatives below, zeros in the padding."""
    row, column = matrix_indices(padded)
    inside = (matrix[:, None, None] < num_matrices) & (row < size) & (column < size) & (row != column)
    position = _position(tl.minimum(row, column), tl.maximum(row, column), size)
    offset = matrix[:, None, None] * (size * (size - 1) // 2) + position
    value = tl.load(logits + offset, mask=inside, other=0.0).to(tl.float64)
    return tl.where(row < column, value, -value)


@triton.jit
@no_type_check
def _position(row, column, size: tl.constexpr):
    """Where the upper triangle, row by row, has the element (row, column)."""
    return row * size - row * (row + 1) // 2 + column - row - 1


@triton.jit
@no_type_check
def _rotation(k):
    """Q = 2K - I."""
    row, column = matrix_indices(k.shape[2])
    return 2.0 * k - tl.where(row == column, 1.0, 0.0)


@triton.jit
@no_type_check
def _product_of_rows(a, b, size: tl.constexpr):
    """A^T B = sum_t (row t of A)^T (row t of B)."""
    product = tl.zeros_like(a)
    for t in range(size):
        product += row_of(a, t)[:, :, None] * row_of(b, t)[:, None, :]
    return product


@triton.jit
@no_type_check
def _product_of_columns(a, b, size: tl.constexpr):
    """A B^T = sum_t (column t of A) (column t of B)^T."""
    product = tl.zeros_like(a)
    for t in range(size):
        product += column_of(a, t)[:, :, None] * column_of(b, t)[:, None, :]
    return product
