"""C-mHC: weights of the d cyclic shifts.

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Circulant(Parametrization):
    r"""A convex combination of the cyclic shifts of the streams (C-mHC). It has d logits, and products commute.

        w = softmax(z),    B = sum_k w_k P^k,    (P x)_i = x_{i-1}

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = d
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Circulant(num_streams=4)(torch.randn(10, 4)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "circulant"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"c-mhc": {}}

    @property
    def num_logits(self) -> int:
        return self.num_streams

    @property
    def covers_polytope(self) -> bool:
        return self.num_streams <= 2

    @property
    def kernel(self) -> str | None:
        return forms.single("circulant", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        stream = torch.arange(self.num_streams, device=logits.device)
        shift = (stream[:, None] - stream) % self.num_streams
        return logits.softmax(-1)[..., shift]

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """The mean of each cyclic diagonal is its best weight; they sum to one, as the matrix does to d."""
        stream = torch.arange(self.num_streams, device=matrix.device)
        weights = [matrix[:, (stream + shift) % self.num_streams, stream].mean(-1) for shift in stream]
        return torch.stack(weights, dim=-1).clamp(min=torch.finfo(torch.float32).tiny).log()
