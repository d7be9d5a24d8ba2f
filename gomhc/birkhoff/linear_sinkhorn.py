"""The matrix that d² weights make when Sinkhorn's exponential is left out (app. B.9, algorithm 1).

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.sinkhorn import IteratedNormalization
from gomhc.kernels import forms
from gomhc.kernels.plain_map import saturated
from gomhc.shapes import Float

EPSILON = 1e-8
"""Keeps a row or a column of zeros from being divided by zero; the paper does not print its value."""


@dataclass(frozen=True, kw_only=True)
class LinearSinkhorn(IteratedNormalization):
    r"""Sinkhorn-Knopp of absolute values (app. B.9).

        M = |W|;    M_ij <- M_ij / (sum_k M_ik + e),  M_ij <- M_ij / (sum_k M_kj + e),  S times

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        num_iterations: number of times that rows and columns are normalised (S).

    Shape:
        - logits: (*batch, p) with p = d²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.LinearSinkhorn(num_streams=4)(torch.randn(10, 16)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "sinkhorn-linear"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mhc-linear": {}}

    @property
    def kernel(self) -> str | None:
        return forms.single("sinkhorn-linear", self.num_streams, self.num_iterations, EPSILON)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        m = saturated(logits).abs().unflatten(-1, (self.num_streams, self.num_streams))
        for _ in range(self.num_iterations):
            m = normalized(m, -1)
            m = normalized(m, -2)
        return m

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        return matrix.flatten(-2)


def normalized(m: Float[Tensor, "*batch d d"], axis: int) -> Float[Tensor, "*batch d d"]:
    """Rows or columns divided by their sums. Those of zeros stay, or each iteration would multiply gradients by 1/e."""
    sums = m.sum(axis, keepdim=True)
    return m / torch.where(sums > 0, sums + EPSILON, 1)
