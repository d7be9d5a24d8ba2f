"""The linear system behind row and column sums: which multiples of rows and columns of ones give a matrix its sums.

    W * (u 1^T + 1 v^T)  has the row sums r and the column sums c:    [diag(W 1)  W; W^T  diag(W^T 1)] (u, v) = (r, c)

* multiplies entry by entry. A pair (u, v) and a pair of sums are vectors of 2d numbers. d = num_streams
"""

from __future__ import annotations

import torch
from torch import Tensor

from gomhc.shapes import Float


def marginals(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch two_d"]:
    """Row sums, then column sums."""
    return torch.cat((matrix.sum(-1), matrix.sum(-2)), dim=-1)


def spread(pair: Float[Tensor, "*batch two_d"]) -> Float[Tensor, "*batch d d"]:
    """U 1^T + 1 v^T, the transpose of `marginals`."""
    u, v = pair.chunk(2, dim=-1)
    return u[..., :, None] + v[..., None, :]


class TransportSystem:
    """The system of a nonnegative W, factored once by eliminating u.

    It is singular along (1, -1) for each connected part of W, which `spread` does not see; the damping makes it
    definite.
    """

    def __init__(self, weights: Float[Tensor, "*batch d d"], damping: float) -> None:
        self.weights = weights
        self.rows = weights.sum(-1) + damping
        columns = torch.diag_embed(weights.sum(-2) + damping)
        # inv_ex: inv would raise for a whole batch when one element holds NaN
        self.inverse = torch.linalg.inv_ex(columns - weights.mT @ (weights / self.rows[..., None])).inverse

    def solve(self, sums: Float[Tensor, "*batch two_d"]) -> Float[Tensor, "*batch two_d"]:
        """The pair (u, v) whose `spread`, times W, has these sums, up to the damping."""
        r, c = sums.chunk(2, dim=-1)
        v = _product(self.inverse, c - _product(self.weights.mT, r / self.rows))
        u = (r - _product(self.weights, v)) / self.rows
        return torch.cat((u, v), dim=-1)


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None]).squeeze(-1)
