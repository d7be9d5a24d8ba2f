"""How do tokens become streams, and streams tokens again?

d = num_streams, c = channels
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from gomhc.kernels import streams as kernel
from gomhc.shapes import Float

How = Literal["mean", "sum"]


def expand(x: Float[Tensor, "*batch c"], num_streams: int) -> Float[Tensor, "*batch d c"]:
    """The same tokens in every stream."""
    if num_streams < 1:
        raise ValueError(f"num_streams must be at least 1, got {num_streams}")
    return x.unsqueeze(-2).expand(*x.shape[:-1], num_streams, x.shape[-1])


def readout(streams: Float[Tensor, "*batch d c"], how: How = "mean") -> Float[Tensor, "*batch c"]:
    """The mean of the streams, or their sum; `LearnedReadout` has weights that the streams steer."""
    if how not in get_args(How):
        raise ValueError(f"how must be one of {', '.join(get_args(How))}, got {how!r}; for weights use LearnedReadout")
    return streams.mean(-2) if how == "mean" else streams.sum(-2)


class LearnedReadout(nn.Module):
    r"""A weighted sum of the streams, sum_j sigmoid(a W x' + b)_j x_j, which starts as their mean.

    The head of DeepSeek-V4, on the same root mean square as the coefficients of a layer.
    """

    def __init__(self, dim: int, num_streams: int, *, norm_epsilon: float = 1e-6) -> None:
        super().__init__()
        self.norm_epsilon = norm_epsilon
        self.weight = nn.Parameter(torch.zeros(num_streams, num_streams * dim))
        mean = torch.full((num_streams,), 1 / num_streams)
        self.bias = nn.Parameter(torch.logit(mean, eps=torch.finfo(torch.float32).eps))
        self.scale = nn.Parameter(torch.full((1,), 0.01))

    def forward(self, streams: Float[Tensor, "*batch d c"]) -> Float[Tensor, "*batch c"]:
        logits = kernel.steered_logits(streams, self.weight, self.scale, self.bias, self.norm_epsilon)
        return kernel.read(streams, kernel.sigmoid(logits))
