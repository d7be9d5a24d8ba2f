"""mHC-lite: the matrix that weights of all d! permutations make.

d = num_streams
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.permutation_matrices import permutation_matrices, require_listed
from gomhc.kernels import forms
from gomhc.shapes import Float

LONGEST_SUM = 120
"""Weights that are summed at once, those of five streams: longer sums lose digits."""


@dataclass(frozen=True, kw_only=True)
class Permutations(Parametrization):
    r"""A convex combination of all permutation matrices (mHC-lite), which reaches every doubly stochastic matrix.

        w = softmax(z),    B = sum_k w_k P_k

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = d!
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Permutations(num_streams=3)(torch.randn(10, 6)).shape
        torch.Size([10, 3, 3])
    """

    key: ClassVar[str] = "permutations"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mhc-lite": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_listed(self.num_streams)

    @property
    def num_logits(self) -> int:
        return math.factorial(self.num_streams)

    @property
    def covers_polytope(self) -> bool:
        return True

    @property
    def kernel(self) -> str | None:
        return forms.single("permutations", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        weights = logits.softmax(-1)
        parts = weights.reshape(-1, max(1, self.num_logits // LONGEST_SUM), min(self.num_logits, LONGEST_SUM))
        vertices = permutation_matrices(self.num_streams, logits).reshape(*parts.shape[1:], self.num_streams**2)
        matrix = torch.bmm(parts.transpose(0, 1), vertices).sum(0)
        matrix = matrix.reshape(*logits.shape[:-1], self.num_streams, self.num_streams)
        return matrix / matrix.sum(-1, keepdim=True).detach()  # rounding of 40,320 weights adds up to some 10 n eps

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        r"""The weights of largest entropy, by generalised iterative scaling (Darroch and Ratcliff, 1972).

            log w_k <- log w_k + (1/d) <P_k, log M - log B>

        Among the many weights that give M these are the least extreme, so all of them can still learn.
        """
        vertices = permutation_matrices(self.num_streams, matrix).flatten(1)
        tiny = torch.finfo(torch.float32).eps ** 2
        target = matrix.flatten(1).clamp(min=tiny)
        logits = matrix.new_zeros(len(matrix), self.num_logits)
        for _ in range(2000):
            image = logits.softmax(-1) @ vertices
            if len(matrix) == 0 or (image - target).abs().max() < 1e-10:
                break
            logits = logits + (target / image.clamp(min=tiny)).log() @ vertices.T / self.num_streams
        return logits
