"""From tokens to streams, and from streams back to tokens. d = num_streams, c = channels."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from gomhc.kernels import plain_streams
from gomhc.kernels.precision import at_least_float32
from gomhc.layers.coefficients import INITIAL_SCALE
from gomhc.shapes import Float

How = Literal["mean", "sum"]


def expand(x: Float[Tensor, "*batch c"], num_streams: int) -> Float[Tensor, "*batch d c"]:
    """Copy the tokens into every stream.

    Args:
        x: the tokens.
        num_streams: number of streams (d).

    Shape:
        - x: (*batch, c)
        - returns: (*batch, d, c), a view

    Example::

        >>> gomhc.expand(torch.randn(2, 5, 8), 4).shape
        torch.Size([2, 5, 4, 8])
    """
    if num_streams < 1:
        raise ValueError(f"num_streams must be at least 1, got {num_streams}")
    return x.unsqueeze(-2).expand(*x.shape[:-1], num_streams, x.shape[-1])


def readout(streams: Float[Tensor, "*batch d c"], how: How = "mean") -> Float[Tensor, "*batch c"]:
    """Reduce the streams to one. For learned weights, use :class:`gomhc.LearnedReadout`.

    Args:
        streams: the residual streams.
        how: the reduction, ``"mean"`` or ``"sum"``.

    Shape:
        - streams: (*batch, d, c)
        - returns: (*batch, c)

    Example::

        >>> gomhc.readout(torch.ones(2, 4, 8), "sum").shape
        torch.Size([2, 8])
    """
    if how not in get_args(How):
        raise ValueError(
            f"how must be one of {', '.join(get_args(How))}, got {how!r}; for learned weights use LearnedReadout"
        )
    return streams.mean(-2) if how == "mean" else streams.sum(-2)


class LearnedReadout(nn.Module):
    r"""Reduce the streams to a learned weighted sum, sum_j sigmoid(a W x' + b)_j x_j, which starts as their mean.

    This is the head of DeepSeek-V4. x' is normalized by the same root mean square as in the coefficients of a layer.

    Args:
        dim: number of channels of a stream (c).
        num_streams: number of streams (d).
        norm_epsilon: added to the mean square of the streams.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Shape:
        - input: (*batch, d, c)
        - output: (*batch, c)

    Example::

        >>> gomhc.LearnedReadout(dim=8, num_streams=4)(torch.randn(2, 4, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        dim: int,
        num_streams: int,
        *,
        norm_epsilon: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.norm_epsilon = norm_epsilon
        self.weight = nn.Parameter(torch.empty(num_streams, num_streams * dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_streams, device=device, dtype=dtype))
        self.scale = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the parameters so that the readout is the mean of the streams."""
        precision = at_least_float32(self.bias.dtype)
        mean = torch.full(self.bias.shape, 1 / len(self.bias), device=self.bias.device, dtype=precision)
        self.weight.zero_()
        self.bias.copy_(torch.logit(mean, eps=torch.finfo(precision).eps))
        self.scale.fill_(INITIAL_SCALE)

    def forward(self, streams: Float[Tensor, "*batch d c"]) -> Float[Tensor, "*batch c"]:
        logits = plain_streams.steered_logits(streams, self.weight, self.scale, self.bias, self.norm_epsilon)
        return plain_streams.read(streams, plain_streams.sigmoid(logits))
