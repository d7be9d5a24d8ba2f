"""mHC: which matrix do d² logits mean after twenty normalisations of rows and columns?

d = num_streams
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization, Promise, require_positive


@dataclass(frozen=True, kw_only=True)
class Sinkhorn(Parametrization):
    r"""Sinkhorn-Knopp in the logarithm (mHC).

        Z <- Z - logsumexp over rows,  Z <- Z - logsumexp over columns,  S times;    B = exp(Z)

    Ends on columns: their sums are one, while row sums are off by what the iterations left.
    """

    key: ClassVar[str] = "sinkhorn"

    num_iterations: int = 20
    """How often rows and columns are normalised (S)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_iterations")

    @property
    def num_logits(self) -> int:
        return self.num_streams**2

    @property
    def promise(self) -> Promise:
        return Promise.APPROXIMATE

    @property
    def covers_polytope(self) -> bool:
        return True

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        z = logits.unflatten(-1, (self.num_streams, self.num_streams))
        for _ in range(self.num_iterations):
            z = z.log_softmax(-1)
            z = z.log_softmax(-2)
        return z.exp()

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Balanced already, so its logarithm is a fixed point of the iteration."""
        return matrix.clamp(min=torch.finfo(torch.float32).tiny).log().flatten(-2)

    def flops(self, num_channels: int) -> float:
        return 4 * num_channels * self.num_iterations * self.num_streams**2
