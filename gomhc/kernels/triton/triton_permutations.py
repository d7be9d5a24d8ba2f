r"""Convex combinations of all permutations in Triton.

    w = softmax(z),    B = sum_k w_k P_k

Permutations are in the order of itertools.permutations and are computed from their numbers.
d = num_streams, N = number of matrices
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.triton.launch import launch
from gomhc.kernels.triton.tiles import load_float32

WEIGHTS = 1024
"""Weights of all matrices of a program: eight a thread."""


def permutations_forward(logits: Tensor, num_streams: int) -> Tensor:
    """(N, d, d) matrices of (N, d!) logits."""
    matrix = logits.new_empty(len(logits), num_streams, num_streams)
    grid, sizes = _grid_and_sizes(len(logits), num_streams)
    launch(_permutations_forward, grid, logits, matrix, len(logits), **sizes)
    return matrix


def permutations_backward(logits: Tensor, grad: Tensor, num_streams: int) -> Tensor:
    """(N, d!) gradients of the logits, given (N, d, d) of the matrices."""
    grad_logits = logits.new_empty(logits.shape)
    grid, sizes = _grid_and_sizes(len(logits), num_streams)
    launch(_permutations_backward, grid, logits, grad, grad_logits, len(logits), **sizes)
    return grad_logits


def _grid_and_sizes(num_matrices: int, num_streams: int) -> tuple[tuple[int], dict[str, Any]]:
    padded_weights = triton.next_power_of_2(math.factorial(num_streams))
    matrix_block = max(1, WEIGHTS // padded_weights)
    padding = {"padded": triton.next_power_of_2(num_streams), "padded_weights": padded_weights}
    sizes = {"num_streams": num_streams, **padding, "matrix_block": matrix_block}
    return (triton.cdiv(num_matrices, matrix_block),), sizes


@triton.jit
@no_type_check
def _permutations_forward(
    logits,
    result,
    num_matrices,
    num_streams: tl.constexpr,
    padded: tl.constexpr,
    padded_weights: tl.constexpr,
    matrix_block: tl.constexpr,
):
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    weights = _weights(logits, matrix, num_matrices, num_streams, padded_weights)
    used = tl.zeros((padded_weights,), tl.int32)
    column = tl.arange(0, padded)[None, :]
    stored = (matrix[:, None] < num_matrices) & (column < num_streams)
    for i in tl.static_range(num_streams):
        image = _image(i, used, num_streams, padded_weights)
        used |= 1 << image
        row = tl.zeros((matrix_block, padded), tl.float32)
        for j in range(num_streams):
            entry = tl.sum(tl.where(image[None, :] == j, weights, 0.0), axis=1)
            row = tl.where(column == j, entry[:, None], row)
        row = row / tl.sum(row, axis=1)[:, None]
        tl.store(result + (matrix[:, None] * num_streams + i) * num_streams + column, row, mask=stored)


@triton.jit
@no_type_check
def _permutations_backward(
    logits,
    grad,
    grad_logits,
    num_matrices,
    num_streams: tl.constexpr,
    padded: tl.constexpr,
    padded_weights: tl.constexpr,
    matrix_block: tl.constexpr,
):
    """G_w = sum_i G_{i, image of i}, and the softmax's own gradient of it."""
    matrix = tl.program_id(0).to(tl.int64) * matrix_block + tl.arange(0, matrix_block)
    weights = _weights(logits, matrix, num_matrices, num_streams, padded_weights)
    used = tl.zeros((padded_weights,), tl.int32)
    index = tl.arange(0, padded_weights)[None, :]
    inside = (matrix[:, None] < num_matrices) & (index < _factorial(num_streams))
    given = tl.zeros((matrix_block, padded_weights), tl.float32)
    for i in tl.static_range(num_streams):
        image = _image(i, used, num_streams, padded_weights)
        used |= 1 << image
        given += load_float32(grad + (matrix[:, None] * num_streams + i) * num_streams + image[None, :], inside)
    given = weights * (given - tl.sum(weights * given, axis=1)[:, None])
    tl.store(grad_logits + matrix[:, None] * _factorial(num_streams) + index, given, mask=inside)


@triton.jit
@no_type_check
def _weights(logits, matrix, num_matrices, num_streams: tl.constexpr, padded_weights: tl.constexpr):
    """The softmax of the logits of each matrix, zeros in the padding."""
    index = tl.arange(0, padded_weights)[None, :]
    there = index < _factorial(num_streams)
    inside = there & (matrix[:, None] < num_matrices)
    z = load_float32(logits + matrix[:, None] * _factorial(num_streams) + index, inside)
    largest = tl.max(tl.where(there, z, float("-inf")), axis=1)
    weights = tl.where(there, tl.exp(z - largest[:, None]), 0.0)
    return weights / tl.sum(weights, axis=1)[:, None]


@triton.jit
@no_type_check
def _image(i: tl.constexpr, used, num_streams: tl.constexpr, padded_weights: tl.constexpr):
    """Where each permutation takes stream i, given the set of images of the streams before it."""
    number = tl.arange(0, padded_weights)
    wanted = (number // _factorial(num_streams - 1 - i)) % (num_streams - i)
    image = tl.zeros((padded_weights,), tl.int32)
    unused = tl.zeros((padded_weights,), tl.int32)
    for j in tl.static_range(num_streams):
        is_free = ((used >> j) & 1) == 0
        image = tl.where(is_free & (unused == wanted), j, image)
        unused += is_free.to(tl.int32)
    return image


@triton.constexpr_function
@no_type_check
def _factorial(number):
    return math.factorial(number)
