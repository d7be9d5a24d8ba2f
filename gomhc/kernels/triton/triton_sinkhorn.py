r"""Sinkhorn's normalisations of rows and columns in Triton, all of them in one launch, in float32.

    log:          M = exp(Z);                    rows and columns divided by their sums, S times
    linear:       M = |W|;                       the same with sums + e; rows or columns of zeros stay
    deepseek-v4:  M = softmax of rows(Z) + e;    columns divided by sums + e, then rows and columns S - 1 times; B = M^T

Only the factors of rows and columns change, M_ij = M0_ij r_i c_j, or in logarithms Z_ij - f_i - g_j: matrices are made
of them anew, so that rounding does not add up. With H = G o M, the gradient times the matrix, all forms share a
backward: a division of rows takes H' to H = H' - M' (row sums of H'). Its kernel computes the factors again and keeps
them in scratch memory. d = num_streams, S = num_iterations, e = epsilon, N = number of matrices
"""

from __future__ import annotations

from typing import Any, Literal, no_type_check

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.triton.launch import launch
from gomhc.kernels.triton.tiles import SATURATION, load_float32, matrix_indices, saturated

Order = Literal["log", "linear", "deepseek-v4"]

MATRIX_ELEMENTS = 512
"""Elements of all padded matrices of a program: four float32 a thread."""
FAR_BELOW: tl.constexpr = tl.constexpr(-1e30)
"""The logarithm of what is not there."""


def sinkhorn_forward(logits: Tensor, num_streams: int, num_iterations: int, form: Order, epsilon: float) -> Tensor:
    """(N, d, d) matrices of (N, d²) logits."""
    matrix = logits.new_empty(len(logits), num_streams, num_streams)
    grid, sizes = _grid_and_sizes(len(logits), num_streams, num_iterations, form)
    launch(_sinkhorn_forward, grid, logits, matrix, len(logits), float(epsilon), **sizes)
    return matrix


def sinkhorn_backward(
    logits: Tensor, grad: Tensor, num_streams: int, num_iterations: int, form: Order, epsilon: float
) -> Tensor:
    """(N, d²) gradients of the logits, given (N, d, d) of the matrices: those of the iterations that were made."""
    grad_logits = logits.new_empty(logits.shape)
    grid, sizes = _grid_and_sizes(len(logits), num_streams, num_iterations, form)
    factors = logits.new_empty(grid[0], 2 * num_iterations + 1, sizes["matrix_block"], sizes["padded"])
    launch(_sinkhorn_backward, grid, logits, grad, grad_logits, factors, len(logits), float(epsilon), **sizes)
    return grad_logits


def _grid_and_sizes(
    num_matrices: int, num_streams: int, num_iterations: int, form: Order
) -> tuple[tuple[int], dict[str, Any]]:
    padded = triton.next_power_of_2(num_streams)
    matrix_block = max(1, MATRIX_ELEMENTS // padded**2)
    sizes = {"num_streams": num_streams, "num_iterations": num_iterations, "form": form}
    padding = {"padded": padded, "matrix_block": matrix_block, "num_warps": 8 if padded > 32 else 4}
    return (triton.cdiv(num_matrices, matrix_block),), sizes | padding


@triton.jit
@no_type_check
def _sinkhorn_forward(
    logits,
    result,
    num_matrices,
    epsilon,
    num_streams: tl.constexpr,
    num_iterations: tl.constexpr,
    form: tl.constexpr,
    padded: tl.constexpr,
    matrix_block: tl.constexpr,
):
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    inside, offset = _places(matrix, num_matrices, num_streams, padded)
    start, _ = _first(load_float32(logits + offset, inside), inside, epsilon, form)
    rows, columns = _no_factors(matrix_block, padded, form)
    if form == "deepseek-v4":
        columns = _factors(start, columns, rows, inside, epsilon, 1, form)
    for _ in range(_num_pairs(num_iterations, form)):
        rows = _factors(start, rows, columns, inside, epsilon, 2, form)
        columns = _factors(start, columns, rows, inside, epsilon, 1, form)
    m = _scaled(start, rows, columns, inside, 1, form)
    tl.store(result + _transposed(offset, matrix, num_streams, padded, form), m, mask=inside)


@triton.jit
@no_type_check
def _sinkhorn_backward(
    logits,
    grad,
    grad_logits,
    factors,
    num_matrices,
    epsilon,
    num_streams: tl.constexpr,
    num_iterations: tl.constexpr,
    form: tl.constexpr,
    padded: tl.constexpr,
    matrix_block: tl.constexpr,
):
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    inside, offset = _places(matrix, num_matrices, num_streams, padded)
    given = load_float32(logits + offset, inside)
    start, softmax = _first(given, inside, epsilon, form)
    slot: tl.constexpr = matrix_block * padded
    factors += tl.program_id(0).to(tl.int64) * ((2 * num_iterations + 1) * slot)
    factors += tl.arange(0, matrix_block)[:, None] * padded + tl.arange(0, padded)[None, :]
    pairs: tl.constexpr = _num_pairs(num_iterations, form)

    rows, columns = _no_factors(matrix_block, padded, form)
    if form == "deepseek-v4":
        columns = _factors(start, columns, rows, inside, epsilon, 1, form)
    first_columns = columns
    tl.store(factors, columns)
    for t in range(pairs):
        rows = _factors(start, rows, columns, inside, epsilon, 2, form)
        columns = _factors(start, columns, rows, inside, epsilon, 1, form)
        tl.store(factors + (2 * t + 1) * slot, rows)
        tl.store(factors + (2 * t + 2) * slot, columns)
    tl.debug_barrier()

    h = load_float32(grad + _transposed(offset, matrix, num_streams, padded, form), inside)
    h *= _scaled(start, rows, columns, inside, 1, form)
    for step in range(pairs):
        t = pairs - 1 - step
        rows = tl.load(factors + (2 * t + 1) * slot)
        columns = tl.load(factors + (2 * t + 2) * slot)
        h -= _scaled(start, rows, columns, inside, 1, form) * tl.sum(h, axis=1)[:, None, :]
        columns = tl.load(factors + 2 * t * slot)
        h -= _scaled(start, rows, columns, inside, 2, form) * tl.sum(h, axis=2)[:, :, None]
    if form == "deepseek-v4":
        ones, _ = _no_factors(matrix_block, padded, form)
        h -= _scaled(start, ones, first_columns, inside, 1, form) * tl.sum(h, axis=1)[:, None, :]
        h = tl.where(start > 0, softmax / tl.where(start > 0, start, 1.0) * h, 0.0)
        h -= softmax * tl.sum(h, axis=2)[:, :, None]
    if form == "linear":
        h = tl.where(given == 0, 0.0, h / tl.where(given == 0, 1.0, given))
    h = tl.where((given >= -SATURATION) & (given <= SATURATION), h, 0.0)
    tl.store(grad_logits + offset, h, mask=inside)


@triton.jit
@no_type_check
def _first(given, inside, epsilon, form: tl.constexpr):
    """What is normalised first, M or its logarithm, and the softmax that it was made of in one of the forms."""
    z = saturated(given)
    if form == "log":
        return z, z
    if form == "linear":
        return tl.abs(z), z
    z = tl.where(inside, z, FAR_BELOW)
    m = tl.exp(z - tl.max(z, axis=2)[:, :, None])
    m = tl.where(inside, m / tl.sum(m, axis=2)[:, :, None], 0.0)
    return tl.where(inside, m + epsilon, 0.0), m


@triton.jit
@no_type_check
def _no_factors(matrix_block: tl.constexpr, padded: tl.constexpr, form: tl.constexpr):
    """Factors of rows and columns that change nothing, or their logarithms."""
    zeros = tl.zeros((matrix_block, padded), tl.float32)
    if form == "log":
        return zeros, zeros
    return zeros + 1.0, zeros + 1.0


@triton.jit
@no_type_check
def _factors(start, these, others, inside, epsilon, axis: tl.constexpr, form: tl.constexpr):
    """The factors of rows (axis = 2) or columns (axis = 1) after a division by sums over this axis."""
    others = tl.expand_dims(others, 3 - axis)
    if form == "log":
        z = tl.where(inside, start - others, FAR_BELOW)
        largest = tl.max(z, axis=axis)
        return largest + tl.log(tl.sum(tl.exp(z - tl.expand_dims(largest, axis)), axis=axis))
    sums = these * tl.sum(start * others, axis=axis)
    return tl.where(sums > 0, these / tl.where(sums > 0, sums + epsilon, 1.0), these)


@triton.jit
@no_type_check
def _scaled(start, rows, columns, inside, axis: tl.constexpr, form: tl.constexpr):
    """The matrix that these factors make after a division by sums over this axis.

    A logarithm is rounded as coarsely as it is large, so sums are made one again.
    """
    if form == "log":
        m = tl.exp(tl.where(inside, start - rows[:, :, None] - columns[:, None, :], FAR_BELOW))
        sums = tl.sum(m, axis=axis)
        return m / tl.expand_dims(tl.where(sums == 0, 1.0, sums), axis)
    return start * rows[:, :, None] * columns[:, None, :]


@triton.jit
@no_type_check
def _places(matrix, num_matrices, num_streams: tl.constexpr, padded: tl.constexpr):
    """Whether an element is one of a matrix, and where it lies."""
    row, column = matrix_indices(padded)
    inside = (matrix[:, None, None] < num_matrices) & (row < num_streams) & (column < num_streams)
    return inside, (matrix[:, None, None] * num_streams + row) * num_streams + column


@triton.jit
@no_type_check
def _transposed(offset, matrix, num_streams: tl.constexpr, padded: tl.constexpr, form: tl.constexpr):
    """Where an element lies in the result, which DeepSeek-V4 applies as its transpose."""
    if form != "deepseek-v4":
        return offset
    row, column = matrix_indices(padded)
    return (matrix[:, None, None] * num_streams + column) * num_streams + row


@triton.constexpr_function
@no_type_check
def _num_pairs(num_iterations, form):
    """Divisions of rows and then of columns."""
    return num_iterations - 1 if form == "deepseek-v4" else num_iterations
