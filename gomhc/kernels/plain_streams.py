r"""Equations 1 to 4 of the paper in plain torch: how the streams of a token are read, mixed and written.

    x' = x / sqrt(mean(x²) + epsilon),    l = a W x' + b                           (logits)
    read = sigmoid(l_read) + offset,    write = 2 sigmoid(l_write),    mix = P(l_mix)    (equations 2 to 4)
    x_i <- sum_j mix_ij x_j + write_i F(sum_j read_j x_j)                          (equation 1)

The logits are packed in the order read, write, mix. P is a mixing (`gomhc.birkhoff`), which the caller applies. The
layers and the inspection use these functions, and the C++ and Triton versions are tested against them.

All are computed in float32 at least and give streams back in their own dtype. Backward keeps the tensors that are
handed in, as they are, and no copy of them in another dtype. d = num_streams, c = channels of a stream, k = logits
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gomhc.kernels.precision import at_least_float32, without_autocast
from gomhc.kernels.row_product import row_product
from gomhc.shapes import Float


def steered_logits(streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """L = a W x' + b, with the norm of x' applied after the product."""
    projection, mean_square = project(streams, weight)
    return projection * torch.rsqrt(mean_square + epsilon) * scale + bias


def coefficients(
    logits: Float[Tensor, "*batch k"], num_streams: int, read_offset: float
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float[Tensor, "*batch p"]]:
    """Read and write of equations 2 and 3, and the logits of the mix, to which equation 4 applies P."""
    num_mix = logits.shape[-1] - 2 * num_streams
    read_logits, write_logits, mix_logits = logits.split((num_streams, num_streams, num_mix), dim=-1)
    return sigmoid(read_logits) + read_offset, 2 * sigmoid(write_logits), mix_logits


def read(streams: Float[Tensor, "*batch d c"], weights: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch c"]:
    """The branch's input, sum_j weights_j streams_j."""

    def function(x: Tensor, r: Tensor) -> Tensor:
        return never_alone(torch.matmul, r[..., None, :], x, inner=2).squeeze(-2)

    weights = weights.expand(*streams.shape[:-2], weights.shape[-1])  # or all tokens would be one product
    return _in_precision(function, streams, weights).to(streams.dtype)


def read_dynamic(
    streams: Float[Tensor, "*batch d c"],
    weight: Float[Tensor, "k dc"],
    scale: Float[Tensor, " k"],
    bias: Float[Tensor, " k"],
    read_offset: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The branch's input, write coefficients and logits of the mix, all steered by the streams."""
    logits = steered_logits(streams, weight, scale, bias, epsilon)
    weights, write_weights, mix_logits = coefficients(logits, streams.shape[-2], read_offset)
    return read(streams, weights), write_weights, mix_logits


def connection(
    streams: Float[Tensor, "*batch d c"],
    weight: Float[Tensor, "k dc"] | None,
    scale: Float[Tensor, 3] | None,
    bias: Float[Tensor, " k"],
    read_offset: float,
    epsilon: float,
    mixing: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """The branch's input, write coefficients and mix; without weight and scale, all tokens share the coefficients."""
    d = streams.shape[-2]
    if weight is None or scale is None:
        weights, write_weights, mix_logits = coefficients(bias, d, read_offset)
        return read(streams, weights), write_weights, mixing(mix_logits)
    scale = spread_scale(scale, d, len(bias))
    branch_input, write_weights, mix_logits = read_dynamic(streams, weight, scale, bias, read_offset, epsilon)
    return branch_input, write_weights, mixing(mix_logits)


def spread_scale(scale: Float[Tensor, 3], num_streams: int, size: int) -> Float[Tensor, " k"]:
    """The scale of each logit, from those of read, write and mix."""
    sizes = num_streams, num_streams, size - 2 * num_streams
    return torch.cat([value.expand(size) for value, size in zip(scale, sizes, strict=True)])


def write(
    streams: Float[Tensor, "*batch d c"],
    mix: Float[Tensor, "*#batch d d"],
    weights: Float[Tensor, "*#batch d"],
    output: Float[Tensor, "*batch c"],
) -> Float[Tensor, "*batch d c"]:
    """out_i = sum_j mix_ij streams_j + weights_i output: `mix` is applied as in the paper, not its transpose."""

    def function(x: Tensor, b: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return never_alone(torch.matmul, b, x, inner=2) + w[..., :, None] * y[..., None, :]

    mix = mix.expand(*streams.shape[:-2], *mix.shape[-2:])
    return _in_precision(function, streams, mix, weights, output).to(streams.dtype)


def project(streams: Float[Tensor, "*batch d c"], weight: Float[Tensor, "k dc"]) -> tuple[Tensor, Tensor]:
    """(*batch, k) products of the flattened streams with the rows of `weight`, and (*batch, 1) their mean square."""

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(-2)
        return row_product(flat, w.mT), never_alone(lambda x: x.square().mean(-1, keepdim=True), flat, inner=1)

    return _in_precision(function, streams, weight)


def sigmoid(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """1 / (1 + exp(-x)), as the softmax of (x, 0).

    torch.sigmoid rounds what is left over from whole vectors in another way, so that a token's value would depend on
    its place.
    """
    x = x.clamp(max=torch.finfo(x.dtype).max)  # the softmax of infinity is NaN
    return torch.stack((x, torch.zeros_like(x)), dim=-1).softmax(-1)[..., 0]


def never_alone(function: Callable[..., Tensor], *tensors: Tensor, inner: int) -> Tensor:
    """Call with one token as if there were two of it: torch shares the work on a single one out among threads.

    `inner` is the number of dimensions that belong to a token.
    """
    if torch.compiler.is_compiling() or tensors[0].shape[:-inner].numel() != 1:
        return function(*tensors)
    return function(*(torch.stack((tensor, tensor)) for tensor in tensors))[0]


def _in_precision(function: Callable[..., Any], streams: Tensor, *others: Tensor) -> Any:
    """Call in float32 at least, autocast off; where that takes copies of the tensors, backward makes them anew."""
    tensors, dtype = (streams, *others), at_least_float32(streams.dtype)

    def converted(*arguments: Tensor) -> Any:
        with without_autocast(streams.device):
            return function(*(argument.to(dtype) for argument in arguments))

    if torch.is_grad_enabled() and any(tensor.dtype != dtype for tensor in tensors):
        return checkpoint(converted, *tensors, use_reentrant=False, preserve_rng_state=False)
    return converted(*tensors)
