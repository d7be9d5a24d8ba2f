"""The matrix that the free reals of a unitary matrix make (app. E).

d = num_streams, s = expressivity, n = d * s, p = n²
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff import fitting
from gomhc.birkhoff.orthostochastic import near_identity_rotation, require_expressivity
from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.rotation_search import inverse_cayley, rotations_with_block_norms
from gomhc.kernels import forms
from gomhc.kernels.plain_map import blockwise_squared_norm, cayley, saturated, skew, upper_triangle
from gomhc.kernels.precision import widened
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Unistochastic(Parametrization):
    r"""Blockwise squared norms of a unitary matrix (app. E).

        U = (I - A)(I + A)^{-1},  A = X + iY,  X^T = -X,  Y^T = Y,    B_ij = (1/s) ||U_ij||_F^2

    In real numbers, [[X, -Y], [Y, X]] is skew-symmetric of size 2n, and the first n columns of its Cayley transform
    are the real part of U above its imaginary part. The logits are the upper triangle of X, then that of Y with its
    diagonal.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        expressivity: size of a block (s); 1 gives the unistochastic matrices, and larger values
            reach more of the polytope.

    Shape:
        - logits: (*batch, p) with p = (d s)²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Unistochastic(num_streams=4)(torch.randn(10, 64)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "go-unitary"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {f"go-unitary-s{s}": {"expressivity": s} for s in (1, 2)}

    expressivity: int = 2
    """Size of a block (s): 1 gives the unistochastic matrices, and larger values reach more of the polytope."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_expressivity(self, self.expressivity)

    @property
    def size(self) -> int:
        """Rows of the unitary matrix (n)."""
        return self.num_streams * self.expressivity

    @property
    def num_logits(self) -> int:
        return self.size**2

    @property
    def covers_polytope(self) -> bool:
        return self.num_streams <= 2

    @property
    def kernel(self) -> str | None:
        return forms.single("go-unitary", self.num_streams, self.expressivity)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        n = self.size
        sizes = (n * (n - 1) // 2, n * (n + 1) // 2)
        skew_logits, symmetric_logits = widened(saturated(logits)).split(sizes, dim=-1)
        x, upper = skew(skew_logits, n), upper_triangle(symmetric_logits, n, offset=0)
        y = upper + upper.triu(1).mT
        a = torch.cat((torch.cat((x, -y), dim=-1), torch.cat((y, x), dim=-1)), dim=-2)
        q = cayley(a)  # two copies of U, which differ by rounding: their mean keeps rows and columns alike
        real, imaginary = (q[..., :n, :n] + q[..., n:, n:]) / 2, (q[..., n:, :n] - q[..., :n, n:]) / 2
        b = blockwise_squared_norm(real, self.num_streams) + blockwise_squared_norm(imaginary, self.num_streams)
        return b.to(logits.dtype)

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        return near_identity_rotation(self, generator)

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        a = inverse_cayley(rotations_with_block_norms(matrix, self.expressivity, torch.complex128))
        row, column = torch.triu_indices(self.size, self.size, offset=1, device=matrix.device)
        diagonal_too = torch.triu_indices(self.size, self.size, device=matrix.device)
        starts = torch.cat((a.real[..., row, column], a.imag[..., diagonal_too[0], diagonal_too[1]]), dim=-1)
        return fitting.closest_logits(self.matrix, starts, matrix)
