r"""The map, the read, the write and the products on a GPU, each in one launch. Importing this takes Triton.

    map:    K = (I + A)^{-1},    Q = 2K - I,    B_ij = (1/s) ||Q_ij||_F^2
    read:   r = rsqrt(mean(x²) + epsilon),    l = r a W x + b,    sum_j (sigmoid(l_j) + offset) x_j
    write:  sum_j B_ij x_j + w_i y
    product:  Y = X M, a row of Y from its row of X alone

The plain versions are in plain_map.py and plain_streams.py. Nothing here records gradients:
each `*_forward` stands beside the `*_backward` that takes the gradients of its results.

The map holds a block of matrices in a program, read and write one token. Sizes are padded to powers of two, as Triton
wants them, and masked. It cannot index registers by a variable, so a row of a matrix is a masked sum. Read and write
sum over streams by loading one after the other, so that only their sums over channels cross threads.

N = tokens, d = num_streams, s = expressivity, n = d * s, c = num_channels, p = logits of the map, k = 2 d + p
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.plain_map import SATURATION as LARGEST_LOGIT

MATRIX_ELEMENTS = 1024
"""Elements of all padded matrices of a program: eight float64 a thread."""
STREAM_ELEMENTS = 2048
"""Elements of a tile of all padded streams: sixteen float32 a thread."""
LOGIT_BLOCK = 1024
"""Logits of the map that are handled at once."""
ROW_BLOCK, INNER_BLOCK, COLUMN_BLOCK = 16, 64, 64
"""Tiles of a product. They are the same for every number of rows: sums are cut in the same places."""
SATURATION: tl.constexpr = tl.constexpr(LARGEST_LOGIT)

# `no_type_check` keeps the shape checks of the tests off what Triton compiles from its source.


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


def read_forward(
    x: Tensor, projection: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(N, c) what the branch sees, (N, d) write weights, (N, p) logits of the map, (N,) inverse root mean squares."""
    num_tokens, num_streams, num_channels = x.shape
    branch_input = x.new_empty(num_tokens, num_channels)
    write = projection.new_empty(num_tokens, num_streams)
    mix_logits = projection.new_empty(num_tokens, projection.shape[1] - 2 * num_streams)
    inverse_rms = projection.new_empty(num_tokens)
    inputs, outputs = (x, projection, scale, bias), (branch_input, write, mix_logits, inverse_rms)
    sizes = _stream_sizes(x) | _logit_sizes(mix_logits)
    _launch(_read_forward, (num_tokens,), *inputs, *outputs, float(read_offset), float(epsilon), **sizes)
    return outputs


def read_backward(
    grad_input: Tensor,
    grad_write: Tensor,
    grad_mix: Tensor,
    x: Tensor,
    projection: Tensor,
    scale: Tensor,
    bias: Tensor,
    inverse_rms: Tensor,
    read_offset: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(N, d, c), (N, k) and (N, k) gradients of x, of the projection and of the logits.

    What comes back to x through the projection, and the sums over tokens for bias and scale, are the caller's.
    """
    grad_x = x.new_empty(x.shape)
    grad_projection, grad_logits = projection.new_empty(projection.shape), projection.new_empty(projection.shape)
    grads, inputs = (grad_input, grad_write, grad_mix), (x, projection, scale, bias, inverse_rms)
    outputs = (grad_x, grad_projection, grad_logits)
    sizes = _stream_sizes(x) | _logit_sizes(grad_mix)
    _launch(_read_backward, (len(x),), *grads, *inputs, *outputs, float(read_offset), **sizes)
    return outputs


def write_forward(x: Tensor, mix: Tensor, write: Tensor, y: Tensor) -> Tensor:
    """(N, d, c) streams after the branch: sum_j mix_ij x_j + write_i y."""
    result = x.new_empty(x.shape)
    sizes = _stream_sizes(x)
    grid = (len(x), triton.cdiv(x.shape[2], sizes["channel_block"]))
    _launch(_write_forward, grid, x, mix, write, y, result, **sizes)
    return result


def write_backward(
    grad: Tensor, x: Tensor, mix: Tensor, write: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, mix, write and y."""
    inputs = (x, mix, write, y)
    outputs = (x.new_empty(x.shape), mix.new_empty(mix.shape), write.new_empty(write.shape), y.new_empty(y.shape))
    _launch(_write_backward, (len(x),), grad, *inputs, *outputs, **_stream_sizes(x))
    return outputs


def project(x: Tensor, weight: Tensor) -> Tensor:
    """(N, k) x weight^T in float32, for x (N, i) and weight (k, i)."""
    result = x.new_zeros(len(x), len(weight), dtype=torch.float32)
    strides = {"inner_stride": 1, "column_stride": weight.shape[1]}
    _launch_product(result, x, weight, inner=weight.shape[1], num_columns=len(weight), **strides)
    return result


def add_back_(x: Tensor, y: Tensor, weight: Tensor) -> None:
    """`x += y weight`, for contiguous x (N, i), y (N, k) and weight (k, i), with sums in float32."""
    strides = {"inner_stride": weight.shape[1], "column_stride": 1}
    _launch_product(x, y, weight, inner=len(weight), num_columns=weight.shape[1], **strides)


def _launch_product(out: Tensor, rows: Tensor, weight: Tensor, **sizes: int) -> None:
    tiles = {"row_block": ROW_BLOCK, "inner_block": INNER_BLOCK, "column_block": COLUMN_BLOCK}
    grid = (triton.cdiv(len(rows), ROW_BLOCK), triton.cdiv(sizes["num_columns"], COLUMN_BLOCK))
    _launch(_add_row_product, grid, out, rows, weight, len(rows), **sizes, **tiles)


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **sizes: int) -> None:
    """Run on the device of the tensors, which need not be the current one; results are contiguous as they are."""
    if grid[0] == 0:
        return
    contiguous = [value.contiguous() if isinstance(value, Tensor) else value for value in arguments]
    with torch.cuda.device_of(contiguous[0]):
        kernel[grid](*contiguous, **sizes)


def _launch_map(kernel: Any, logits: Tensor, *others: Tensor, num_streams: int, expressivity: int) -> None:
    padded = max(2, triton.next_power_of_2(num_streams * expressivity))
    matrix_block = max(1, MATRIX_ELEMENTS // padded**2)
    sizes = {"num_streams": num_streams, "expressivity": expressivity}
    padding = {"padded": padded, "padded_streams": triton.next_power_of_2(num_streams), "matrix_block": matrix_block}
    num_matrices = len(logits)
    grid = (triton.cdiv(num_matrices, matrix_block),)
    _launch(kernel, grid, logits, *others, num_matrices, **sizes, **padding)


def _stream_sizes(x: Tensor) -> dict[str, int]:
    _, num_streams, num_channels = x.shape
    padded_streams = triton.next_power_of_2(num_streams)
    channel_block = min(triton.next_power_of_2(num_channels), max(1, STREAM_ELEMENTS // padded_streams))
    return {
        "num_streams": num_streams,
        "num_channels": num_channels,
        "padded_streams": padded_streams,
        "channel_block": channel_block,
    }


def _logit_sizes(mix_logits: Tensor) -> dict[str, int]:
    num_logits = mix_logits.shape[1]
    return {"num_logits": num_logits, "logit_block": min(LOGIT_BLOCK, triton.next_power_of_2(max(1, num_logits)))}


# The map
# ----------------------------------------------------------------------------------------------------------------------


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
    row, column = _indices(padded)
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
    row, column = _indices(padded)
    m = tl.where(row == column, 1.0, _saturated(_skew(logits, matrix, num_matrices, size, padded)))
    index = tl.arange(0, padded)[None, :]
    pivots = tl.zeros((m.shape[0], padded), tl.int32)
    for t in range(size):
        candidates = tl.where((index >= t) & (index < size), tl.abs(_column(m, t)), -1.0)
        best = tl.argmax(candidates, axis=1)
        pivots = tl.where(index == t, best[:, None], pivots)
        here, there = _row(m, t), tl.sum(tl.where(row == best[:, None, None], m, 0.0), axis=1)
        m = tl.where(row == best[:, None, None], here[:, None, :], m)
        m = tl.where(row == t, there[:, None, :], m)
        pivot = tl.sum(tl.where(index == t, there, 0.0), axis=1)
        v = tl.where(index == t, 1.0, there) / pivot[:, None]
        u = tl.where(index == t, -1.0, _column(m, t))
        m = tl.where((row == t) | (column == t), 0.0, m) - u[:, :, None] * v[:, None, :]
    for step in range(size):
        t = size - 1 - step
        best = tl.sum(tl.where(index == t, pivots, 0), axis=1)
        here, there = _column(m, t), tl.sum(tl.where(column == best[:, None, None], m, 0.0), axis=2)
        m = tl.where(column == best[:, None, None], here[:, :, None], m)
        m = tl.where(column == t, there[:, :, None], m)
    return m


@triton.jit
@no_type_check
def _saturated(value):
    """Larger logits count as SATURATION; NaN stays NaN."""
    value = tl.where(value > SATURATION, SATURATION, value)
    return tl.where(value < -SATURATION, -SATURATION, value)


@triton.jit
@no_type_check
def _skew(logits, matrix, num_matrices, size: tl.constexpr, padded: tl.constexpr):
    """A in float64: logits above the diagonal, their negatives below, zeros in the padding."""
    row, column = _indices(padded)
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
    row, column = _indices(k.shape[2])
    return 2.0 * k - tl.where(row == column, 1.0, 0.0)


@triton.jit
@no_type_check
def _product_of_rows(a, b, size: tl.constexpr):
    """A^T B = sum_t (row t of A)^T (row t of B)."""
    product = tl.zeros_like(a)
    for t in range(size):
        product += _row(a, t)[:, :, None] * _row(b, t)[:, None, :]
    return product


@triton.jit
@no_type_check
def _product_of_columns(a, b, size: tl.constexpr):
    """A B^T = sum_t (column t of A) (column t of B)^T."""
    product = tl.zeros_like(a)
    for t in range(size):
        product += _column(a, t)[:, :, None] * _column(b, t)[:, None, :]
    return product


@triton.jit
@no_type_check
def _row(m, t):
    """Row t of each matrix."""
    row, _ = _indices(m.shape[2])
    return tl.sum(tl.where(row == t, m, 0.0), axis=1)


@triton.jit
@no_type_check
def _column(m, t):
    """Column t of each matrix."""
    _, column = _indices(m.shape[2])
    return tl.sum(tl.where(column == t, m, 0.0), axis=2)


@triton.jit
@no_type_check
def _indices(padded: tl.constexpr):
    """Row and column of the elements of a matrix, to be broadcast."""
    index = tl.arange(0, padded)
    return index[None, :, None], index[None, None, :]


# Streams
# ----------------------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _read_forward(
    x,
    projection,
    scale,
    bias,
    branch_input,
    write,
    mix_logits,
    inverse_rms,
    read_offset,
    epsilon,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
    num_logits: tl.constexpr,
    logit_block: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    x += token * num_streams * num_channels
    projection += token * (2 * num_streams + num_logits)
    r = tl.rsqrt(_mean_square(x, num_streams * num_channels, padded_streams * channel_block) + epsilon)
    tl.store(inverse_rms + token, r)

    for start in range(0, num_channels, channel_block):
        channel = start + tl.arange(0, channel_block)
        total = tl.zeros((channel_block,), tl.float32)
        for j in range(num_streams):
            weight = tl.sigmoid(_logit(projection, scale, bias, r, j, True)) + read_offset
            total += weight * _load(x + j * num_channels + channel, channel < num_channels)
        tl.store(branch_input + token * num_channels + channel, total, mask=channel < num_channels)

    stream = tl.arange(0, padded_streams)
    weights = 2.0 * tl.sigmoid(_logit(projection, scale, bias, r, num_streams + stream, stream < num_streams))
    tl.store(write + token * num_streams + stream, weights, mask=stream < num_streams)

    for start in range(0, num_logits, logit_block):
        index = start + tl.arange(0, logit_block)
        logits = _logit(projection, scale, bias, r, 2 * num_streams + index, index < num_logits)
        tl.store(mix_logits + token * num_logits + index, logits, mask=index < num_logits)


@triton.jit
@no_type_check
def _read_backward(
    grad_input,
    grad_write,
    grad_mix,
    x,
    projection,
    scale,
    bias,
    inverse_rms,
    grad_x,
    grad_projection,
    grad_logits,
    read_offset,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
    num_logits: tl.constexpr,
    logit_block: tl.constexpr,
):
    """The logits first, as all of them change the root mean square and through it the streams."""
    token = tl.program_id(0).to(tl.int64)
    x += token * num_streams * num_channels
    grad_x += token * num_streams * num_channels
    grad_input += token * num_channels
    projection += token * (2 * num_streams + num_logits)
    grad_projection += token * (2 * num_streams + num_logits)
    grad_logits += token * (2 * num_streams + num_logits)
    r = tl.load(inverse_rms + token)
    stream = tl.arange(0, padded_streams)
    is_stream = stream < num_streams

    read = tl.sigmoid(_logit(projection, scale, bias, r, stream, is_stream))
    grad = _inner_products(x, grad_input, num_streams, num_channels, padded_streams, channel_block)
    grad *= read * (1.0 - read)
    grad_r = _logit_backward(grad, projection, scale, r, grad_projection, grad_logits, stream, is_stream)

    index = num_streams + stream
    write = tl.sigmoid(_logit(projection, scale, bias, r, index, is_stream))
    grad = _load(grad_write + token * num_streams + stream, is_stream) * 2.0 * write * (1.0 - write)
    grad_r += _logit_backward(grad, projection, scale, r, grad_projection, grad_logits, index, is_stream)

    for start in range(0, num_logits, logit_block):
        logit = start + tl.arange(0, logit_block)
        is_logit = logit < num_logits
        given = _load(grad_mix + token * num_logits + logit, is_logit)
        place = 2 * num_streams + logit
        grad_r += _logit_backward(given, projection, scale, r, grad_projection, grad_logits, place, is_logit)

    shrink = grad_r * r * r * r / (num_streams * num_channels)
    for start in range(0, num_channels, channel_block):
        channel = start + tl.arange(0, channel_block)
        streams = _load_streams(x, channel, num_streams, num_channels, padded_streams)
        result = (read + read_offset)[:, None] * _load_row(grad_input, channel, num_channels) - shrink * streams
        _store_streams(grad_x, result, channel, num_streams, num_channels, padded_streams)


@triton.jit
@no_type_check
def _write_forward(
    x,
    mix,
    write,
    y,
    result,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    stream = tl.arange(0, padded_streams)
    x += token * num_streams * num_channels
    result += token * num_streams * num_channels
    mix += token * num_streams * num_streams

    weights = _load(write + token * num_streams + stream, stream < num_streams)
    total = weights[:, None] * _load_row(y + token * num_channels, channel, num_channels)
    for j in range(num_streams):
        column = _load(mix + stream * num_streams + j, stream < num_streams)
        total += column[:, None] * _load_row(x + j * num_channels, channel, num_channels)
    _store_streams(result, total, channel, num_streams, num_channels, padded_streams)


@triton.jit
@no_type_check
def _write_backward(
    grad,
    x,
    mix,
    write,
    y,
    grad_x,
    grad_mix,
    grad_write,
    grad_y,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
):
    """Stream i of the gradient goes to all of x and y, and makes row i of the gradient of mix."""
    token = tl.program_id(0).to(tl.int64)
    stream = tl.arange(0, padded_streams)
    is_stream = stream < num_streams
    grad += token * num_streams * num_channels
    x += token * num_streams * num_channels
    grad_x += token * num_streams * num_channels
    mix += token * num_streams * num_streams
    write += token * num_streams
    y += token * num_channels
    grad_y += token * num_channels

    total_mix = tl.zeros((padded_streams, padded_streams), tl.float32)
    total_write = tl.zeros((padded_streams,), tl.float32)
    for start in range(0, num_channels, channel_block):
        channel = start + tl.arange(0, channel_block)
        streams = _load_streams(x, channel, num_streams, num_channels, padded_streams)
        output = _load_row(y, channel, num_channels)
        total_x = tl.zeros((padded_streams, channel_block), tl.float32)
        total_y = tl.zeros((1, channel_block), tl.float32)
        for i in range(num_streams):
            grad_i = _load_row(grad + i * num_channels, channel, num_channels)
            total_x += _load(mix + i * num_streams + stream, is_stream)[:, None] * grad_i
            total_y += tl.load(write + i) * grad_i
            row = tl.sum(grad_i * streams, axis=1)
            total_mix += tl.where(stream[:, None] == i, row[None, :], 0.0)
            total_write += tl.where(stream == i, tl.sum(grad_i * output, axis=1), 0.0)
        _store_streams(grad_x, total_x, channel, num_streams, num_channels, padded_streams)
        tl.store(grad_y + channel[None, :], total_y, mask=(channel < num_channels)[None, :])

    element = (token * num_streams + stream[:, None]) * num_streams + stream[None, :]
    tl.store(grad_mix + element, total_mix, mask=is_stream[:, None] & is_stream[None, :])
    tl.store(grad_write + token * num_streams + stream, total_write, mask=is_stream)


@triton.jit
@no_type_check
def _add_row_product(
    out,
    rows,
    matrix,
    num_rows,
    inner: tl.constexpr,
    num_columns: tl.constexpr,
    inner_stride: tl.constexpr,
    column_stride: tl.constexpr,
    row_block: tl.constexpr,
    inner_block: tl.constexpr,
    column_block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * row_block + tl.arange(0, row_block)
    column = tl.program_id(1) * column_block + tl.arange(0, column_block)
    total = tl.zeros((row_block, column_block), tl.float32)
    for start in range(0, inner, inner_block):
        i = start + tl.arange(0, inner_block)
        left = _load(rows + row[:, None] * inner + i[None, :], (row < num_rows)[:, None] & (i < inner)[None, :])
        place = i[:, None] * inner_stride + column[None, :] * column_stride
        right = _load(matrix + place, (i < inner)[:, None] & (column < num_columns)[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    place = row[:, None] * num_columns + column[None, :]
    inside = (row < num_rows)[:, None] & (column < num_columns)[None, :]
    tl.store(out + place, _load(out + place, inside) + total, mask=inside)


@triton.jit
@no_type_check
def _mean_square(x, size: tl.constexpr, block: tl.constexpr):
    """Mean of the squares of `size` numbers from x on."""
    squares = tl.zeros((block,), tl.float32)
    for start in range(0, size, block):
        index = start + tl.arange(0, block)
        value = _load(x + index, index < size)
        squares += value * value
    return tl.sum(squares, axis=0) / size


@triton.jit
@no_type_check
def _inner_products(
    x,
    vector,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
):
    """sum_c x_jc vector_c for all streams j of a token."""
    products = tl.zeros((padded_streams, channel_block), tl.float32)
    for start in range(0, num_channels, channel_block):
        channel = start + tl.arange(0, channel_block)
        row = _load_row(vector, channel, num_channels)
        products += _load_streams(x, channel, num_streams, num_channels, padded_streams) * row
    return tl.sum(products, axis=1)


@triton.jit
@no_type_check
def _logit(projection, scale, bias, r, index, mask):
    """The logits l = r a W x + b at `index`."""
    return _load(projection + index, mask) * r * _load(scale + index, mask) + _load(bias + index, mask)


@triton.jit
@no_type_check
def _logit_backward(grad_logit, projection, scale, r, grad_projection, grad_logits, index, mask):
    """Store the gradients at `index`; return what they add to the gradient of r."""
    scales = _load(scale + index, mask)
    tl.store(grad_logits + index, grad_logit, mask=mask)
    tl.store(grad_projection + index, grad_logit * r * scales, mask=mask)
    return tl.sum(grad_logit * _load(projection + index, mask) * scales, axis=0)


@triton.jit
@no_type_check
def _load(pointer, mask):
    """In float32, zeros where masked."""
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def _load_row(stream, channel, num_channels: tl.constexpr):
    """These channels of one stream, in float32: (1, block), to be laid out as the tiles it meets are."""
    return _load(stream + channel[None, :], (channel < num_channels)[None, :])


@triton.jit
@no_type_check
def _load_streams(x, channel, num_streams: tl.constexpr, num_channels: tl.constexpr, padded_streams: tl.constexpr):
    """These channels of all streams of a token, in float32."""
    stream = tl.arange(0, padded_streams)
    mask = (stream < num_streams)[:, None] & (channel < num_channels)[None, :]
    return _load(x + stream[:, None] * num_channels + channel[None, :], mask)


@triton.jit
@no_type_check
def _store_streams(
    x, value, channel, num_streams: tl.constexpr, num_channels: tl.constexpr, padded_streams: tl.constexpr
):
    """These channels of all streams of a token, in the dtype of x."""
    stream = tl.arange(0, padded_streams)
    mask = (stream < num_streams)[:, None] & (channel < num_channels)[None, :]
    tl.store(x + stream[:, None] * num_channels + channel[None, :], value, mask=mask)
