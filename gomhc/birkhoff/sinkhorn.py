"""mHC: which matrix do d² logits mean after twenty normalisations of rows and columns?

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization, Promise, require_positive
from gomhc.checks import require_number
from gomhc.kernels.orthostochastic import saturated
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class IteratedNormalization(Parametrization):
    """What the forms of Sinkhorn-Knopp have in common: d² numbers, whose rows and columns are normalised in turn."""

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


@dataclass(frozen=True, kw_only=True)
class Sinkhorn(IteratedNormalization):
    r"""Sinkhorn-Knopp in the logarithm (mHC).

        Z <- Z - logsumexp over rows,  Z <- Z - logsumexp over columns,  S times;    B = exp(Z)

    Ends on columns: their sums are one, while row sums are off by what the iterations left.

    With `epsilon`, the form of DeepSeek-V4: M = softmax of rows + e, then columns and rows divided by their sums + e,
    columns first and last. That model applies M^T to its streams, so B is M^T: here it is rows that come out last.
    """

    key: ClassVar[str] = "sinkhorn"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mhc": {}}

    epsilon: float | None = None
    """None for mHC's form; a number for DeepSeek-V4's, which adds it (1e-6 there)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is not None:
            require_number("epsilon", self.epsilon, least=0)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        z = saturated(logits).unflatten(-1, (self.num_streams, self.num_streams))
        if self.epsilon is not None:
            return deepseek_v4_sinkhorn(z, self.num_iterations, self.epsilon)
        for _ in range(self.num_iterations):
            z = z.log_softmax(-1)
            z = z.log_softmax(-2)
        return z.exp()

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Balanced already, so its logarithm is a fixed point of the iteration."""
        log = matrix.clamp(min=torch.finfo(torch.float32).tiny).log()
        return (log if self.epsilon is None else log.mT).flatten(-2)


def deepseek_v4_sinkhorn(z: Float[Tensor, "*batch d d"], num_iterations: int, epsilon: float) -> Tensor:
    """The transpose of what DeepSeek-V4 calls `comb`."""
    m = z.softmax(-1) + epsilon
    m = m / (m.sum(-2, keepdim=True) + epsilon)
    for _ in range(num_iterations - 1):
        m = m / (m.sum(-1, keepdim=True) + epsilon)
        m = m / (m.sum(-2, keepdim=True) + epsilon)
    return m.mT
