"""The matrix that (d - 1)² shares make, each of which says how full its entry is (not in the paper).

d = num_streams
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.kernels import forms
from gomhc.shapes import Float

Choose = Callable[[int, int, Tensor, Tensor], Tensor]
"""(row, column, lowest, highest) -> the entry."""


@dataclass(frozen=True, kw_only=True)
class Transportation(Parametrization):
    r"""Entries filled one by one inside the interval that rows and columns still allow.

        B_ij = low + (high - low) sigmoid(z_ij),    high = min(r_i, c_j),    low = max(0, r_i - sum_{k>j} c_k)

    r_i is what row i still lacks, and c_j what column j still lacks; the last row and column take what remains. There
    are as many logits as the polytope has dimensions. Every matrix in the polytope can be reached, those on its
    boundary in the limit.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = (d - 1)²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Transportation(num_streams=4)(torch.randn(10, 9)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "transportation"

    @property
    def num_logits(self) -> int:
        return (self.num_streams - 1) ** 2

    @property
    def covers_polytope(self) -> bool:
        return True

    @property
    def kernel(self) -> str | None:
        return forms.single("transportation", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        share = logits.sigmoid().reshape(*logits.shape[:-1], self.num_streams - 1, self.num_streams - 1)
        ones = logits.new_ones(*logits.shape[:-1], self.num_streams)
        return fill(ones, lambda i, j, low, high: low + (high - low) * share[..., i, j])

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """The share that each entry of the matrix is of its interval; where the interval is a point, one half."""
        logits = matrix.new_zeros(len(matrix), self.num_streams - 1, self.num_streams - 1)
        eps = torch.finfo(torch.float32).eps ** 1.5

        def record(i: int, j: int, low: Tensor, high: Tensor) -> Tensor:
            share = torch.where(high - low > eps, (matrix[:, i, j] - low) / (high - low), 0.5)
            logits[:, i, j] = share.logit(eps)
            return matrix[:, i, j]

        fill(matrix.new_ones(len(matrix), self.num_streams), record)
        return logits.flatten(1)


def fill(ones: Float[Tensor, "*batch d"], choose: Choose) -> Float[Tensor, "*batch d d"]:
    """A matrix with unit row and column sums; `choose` picks free entries from their intervals, in reading order."""
    last = ones.shape[-1] - 1
    lacked_by_column = ones
    rows = []
    for i in range(last):
        lacked_later = lacked_by_column.flip(-1).cumsum(-1).flip(-1)
        lacked = ones[..., 0]
        row = []
        for j in range(last):
            low = (lacked - lacked_later[..., j + 1]).clamp(min=0)
            high = torch.minimum(lacked, lacked_by_column[..., j])
            entry = choose(i, j, low, torch.maximum(low, high))  # they may cross by a rounding
            lacked = (lacked - entry).clamp(min=0)
            row.append(entry)
        rows.append(torch.stack((*row, lacked), dim=-1))
        lacked_by_column = (lacked_by_column - rows[-1]).clamp(min=0)
    return torch.stack((*rows, lacked_by_column), dim=-2)
