r"""Read and write in Triton, a token a program.

    read:   r = rsqrt(mean(x²) + epsilon),    l = r a W x + b,    sum_j (sigmoid(l_j) + offset) x_j
    write:  sum_j B_ij x_j + w_i y

Sums over streams load one stream after the other, so that only sums over channels cross threads. Sizes are padded to
powers of two and masked. N = tokens, d = num_streams, c = num_channels, p = logits of the map, k = 2 d + p
"""

from __future__ import annotations

from typing import no_type_check

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.triton.launch import launch
from gomhc.kernels.triton.tiles import load_float32

STREAM_ELEMENTS = 2048
"""Elements of a tile of all padded streams: sixteen float32 a thread."""
LOGIT_BLOCK = 1024
"""Logits of the map that are handled at once."""


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
    launch(_read_forward, (num_tokens,), *inputs, *outputs, float(read_offset), float(epsilon), **sizes)
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
    launch(_read_backward, (len(x),), *grads, *inputs, *outputs, float(read_offset), **sizes)
    return outputs


def read_shared_forward(x: Tensor, weights: Tensor) -> Tensor:
    """(N, c) what the branch sees with (d,) weights that all tokens share: sum_j weights_j x_j."""
    branch_input = x.new_empty(len(x), x.shape[2])
    sizes = _stream_sizes(x)
    grid = (len(x), triton.cdiv(x.shape[2], sizes["channel_block"]))
    launch(_read_shared_forward, grid, x, weights, branch_input, **sizes)
    return branch_input


def read_shared_backward(grad: Tensor, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and the weights."""
    grad_x, grad_weights = x.new_empty(x.shape), weights.new_empty(len(x), len(weights))
    launch(_read_shared_backward, (len(x),), grad, x, weights, grad_x, grad_weights, **_stream_sizes(x))
    return grad_x, grad_weights.sum(0)


def write_forward(x: Tensor, mix: Tensor, write: Tensor, y: Tensor) -> Tensor:
    """(N, d, c) streams after the branch: sum_j mix_ij x_j + write_i y. Mix (d, d) and write (d) are all tokens'."""
    result = x.new_empty(x.shape)
    sizes = _stream_sizes(x)
    grid = (len(x), triton.cdiv(x.shape[2], sizes["channel_block"]))
    launch(_write_forward, grid, x, mix, write, y, result, **sizes, is_shared=mix.dim() == 2)
    return result


def write_backward(
    grad: Tensor, x: Tensor, mix: Tensor, write: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, mix, write and y."""
    d, is_shared = x.shape[1], mix.dim() == 2
    grad_x, grad_y = x.new_empty(x.shape), y.new_empty(y.shape)
    grad_mix, grad_write = mix.new_empty(len(x), d, d), write.new_empty(len(x), d)
    tensors = (grad, x, mix, write, y, grad_x, grad_mix, grad_write, grad_y)
    launch(_write_backward, (len(x),), *tensors, **_stream_sizes(x), is_shared=is_shared)
    if is_shared:
        grad_mix, grad_write = grad_mix.sum(0), grad_write.sum(0)
    return grad_x, grad_mix, grad_write, grad_y


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
            total += weight * load_float32(x + j * num_channels + channel, channel < num_channels)
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
    grad = load_float32(grad_write + token * num_streams + stream, is_stream) * 2.0 * write * (1.0 - write)
    grad_r += _logit_backward(grad, projection, scale, r, grad_projection, grad_logits, index, is_stream)

    for start in range(0, num_logits, logit_block):
        logit = start + tl.arange(0, logit_block)
        is_logit = logit < num_logits
        given = load_float32(grad_mix + token * num_logits + logit, is_logit)
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
def _read_shared_forward(
    x,
    weights,
    branch_input,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    x += token * num_streams * num_channels
    total = tl.zeros((channel_block,), tl.float32)
    for j in range(num_streams):
        total += tl.load(weights + j) * load_float32(x + j * num_channels + channel, channel < num_channels)
    tl.store(branch_input + token * num_channels + channel, total, mask=channel < num_channels)


@triton.jit
@no_type_check
def _read_shared_backward(
    grad,
    x,
    weights,
    grad_x,
    grad_weights,
    num_streams: tl.constexpr,
    num_channels: tl.constexpr,
    padded_streams: tl.constexpr,
    channel_block: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    stream = tl.arange(0, padded_streams)
    is_stream = stream < num_streams
    x += token * num_streams * num_channels
    grad_x += token * num_streams * num_channels
    grad += token * num_channels
    read = load_float32(weights + stream, is_stream)
    products = tl.zeros((padded_streams, channel_block), tl.float32)
    for start in range(0, num_channels, channel_block):
        channel = start + tl.arange(0, channel_block)
        row = _load_row(grad, channel, num_channels)
        products += _load_streams(x, channel, num_streams, num_channels, padded_streams) * row
        _store_streams(grad_x, read[:, None] * row, channel, num_streams, num_channels, padded_streams)
    tl.store(grad_weights + token * num_streams + stream, tl.sum(products, axis=1), mask=is_stream)


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
    is_shared: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    stream = tl.arange(0, padded_streams)
    x += token * num_streams * num_channels
    result += token * num_streams * num_channels
    if not is_shared:
        mix += token * num_streams * num_streams
        write += token * num_streams

    weights = load_float32(write + stream, stream < num_streams)
    total = weights[:, None] * _load_row(y + token * num_channels, channel, num_channels)
    for j in range(num_streams):
        column = load_float32(mix + stream * num_streams + j, stream < num_streams)
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
    is_shared: tl.constexpr,
):
    """Stream i of the gradient goes to all of x and y, and makes row i of the gradient of mix."""
    token = tl.program_id(0).to(tl.int64)
    stream = tl.arange(0, padded_streams)
    is_stream = stream < num_streams
    grad += token * num_streams * num_channels
    x += token * num_streams * num_channels
    grad_x += token * num_streams * num_channels
    if not is_shared:
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
            total_x += load_float32(mix + i * num_streams + stream, is_stream)[:, None] * grad_i
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
def _mean_square(x, size: tl.constexpr, block: tl.constexpr):
    """Mean of the squares of `size` numbers from x on."""
    squares = tl.zeros((block,), tl.float32)
    for start in range(0, size, block):
        index = start + tl.arange(0, block)
        value = load_float32(x + index, index < size)
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
    return load_float32(projection + index, mask) * r * load_float32(scale + index, mask) + load_float32(
        bias + index, mask
    )


@triton.jit
@no_type_check
def _logit_backward(grad_logit, projection, scale, r, grad_projection, grad_logits, index, mask):
    """Store the gradients at `index`; return what they add to the gradient of r."""
    scales = load_float32(scale + index, mask)
    tl.store(grad_logits + index, grad_logit, mask=mask)
    tl.store(grad_projection + index, grad_logit * r * scales, mask=mask)
    return tl.sum(grad_logit * load_float32(projection + index, mask) * scales, axis=0)


@triton.jit
@no_type_check
def _load_row(stream, channel, num_channels: tl.constexpr):
    """These channels of one stream, in float32: (1, block), to be laid out as the tiles it meets are."""
    return load_float32(stream + channel[None, :], (channel < num_channels)[None, :])


@triton.jit
@no_type_check
def _load_streams(x, channel, num_streams: tl.constexpr, num_channels: tl.constexpr, padded_streams: tl.constexpr):
    """These channels of all streams of a token, in float32."""
    stream = tl.arange(0, padded_streams)
    mask = (stream < num_streams)[:, None] & (channel < num_channels)[None, :]
    return load_float32(x + stream[:, None] * num_channels + channel[None, :], mask)


@triton.jit
@no_type_check
def _store_streams(
    x, value, channel, num_streams: tl.constexpr, num_channels: tl.constexpr, padded_streams: tl.constexpr
):
    """These channels of all streams of a token, in the dtype of x."""
    stream = tl.arange(0, padded_streams)
    mask = (stream < num_streams)[:, None] & (channel < num_channels)[None, :]
    tl.store(x + stream[:, None] * num_channels + channel[None, :], value, mask=mask)
