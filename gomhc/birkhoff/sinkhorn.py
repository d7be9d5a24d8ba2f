"""mHC: the matrix that d² logits make after twenty normalisations of rows and columns.

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization, require_positive
from gomhc.birkhoff.promise import Promise
from gomhc.kernels import forms
from gomhc.kernels.plain_map import saturated
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class IteratedNormalization(Parametrization):
    """Base class for forms of Sinkhorn-Knopp: rows and columns of d² numbers are normalised in turn."""

    num_iterations: int = 20
    """Number of times that rows and columns are normalised (S)."""

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
    r"""Sinkhorn-Knopp in log space (mHC).

        Z <- Z - logsumexp over rows,  Z <- Z - logsumexp over columns,  S times;    B = exp(Z)

    The last step normalises columns. So column sums are one, and row sums have an error.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        num_iterations: number of times that rows and columns are normalised (S).

    Shape:
        - logits: (*batch, p) with p = d²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Sinkhorn(num_streams=4)(torch.randn(10, 16)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "sinkhorn"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mhc": {}}

    @property
    def kernel(self) -> str | None:
        return forms.single("sinkhorn", self.num_streams, self.num_iterations)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        z = saturated(logits).unflatten(-1, (self.num_streams, self.num_streams))
        for _ in range(self.num_iterations):
            z = z.log_softmax(-1)
            z = z.log_softmax(-2)
        return z.exp()

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Balanced already, so its logarithm is a fixed point of the iteration."""
        return matrix.clamp(min=torch.finfo(torch.float32).tiny).log().flatten(-2)
