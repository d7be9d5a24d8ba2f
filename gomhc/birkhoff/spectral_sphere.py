"""sHC: unit sums and a spectral norm of one, with entries of either sign.

d = num_streams, m = d - 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.promise import Promise
from gomhc.birkhoff.rotation_search import inverse_cayley
from gomhc.kernels import forms
from gomhc.kernels.plain_map import cayley, saturated, skew
from gomhc.kernels.precision import widened
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class SpectralSphere(Parametrization):
    r"""Unit row and column sums with a spectral norm of one, and entries of either sign (sHC).

        B = J + U Q_1 diag(tanh(z)) Q_2^T U^T,    Q_i = (I - A_i)(I + A_i)^{-1},    J = 1/d

    U is an orthonormal basis of the vectors that sum to zero, so rows and columns of B sum to one and ||B||_2 = 1.
    Entries may be negative. Every doubly stochastic matrix can be reached, or approached in the limit. The logits are
    z, A_1 and A_2.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = (d - 1)²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.SpectralSphere(num_streams=4)(torch.randn(10, 9)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "spectral-sphere"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"shc": {}}

    @property
    def num_logits(self) -> int:
        return (self.num_streams - 1) ** 2

    @property
    def promise(self) -> Promise:
        return Promise(unit_rows=True, unit_columns=True, norm=1)

    @property
    def covers_polytope(self) -> bool:
        return True

    @property
    def kernel(self) -> str | None:
        return forms.single("spectral-sphere", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        m = self.num_streams - 1
        z, *skew_logits = widened(saturated(logits)).split((m, m * (m - 1) // 2, m * (m - 1) // 2), dim=-1)
        left, right = (cayley(skew(part, m)) for part in skew_logits)
        basis = zero_sum_basis(z, self.num_streams)
        contraction = (left * z.tanh()[..., None, :]) @ right.mT
        return (1 / self.num_streams + basis @ contraction @ basis.mT).to(logits.dtype)

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        """A random symmetric matrix, Q_1 = Q_2. No two tanh(z) are equal, or some directions would have no gradient."""
        device = generator.device if generator is not None else torch.device("cpu")
        m = self.num_streams - 1
        loss = 0.5 + torch.rand(m, generator=generator, dtype=torch.float64, device=device)
        loss = self.initial_leak * self.num_streams * loss / loss.sum()  # the trace of B is 1 + sum tanh(z)
        rotation = torch.randn(m * (m - 1) // 2, generator=generator, dtype=torch.float64, device=device)
        return torch.cat(((1 - loss).atanh(), rotation, rotation))

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """The singular values of U^T M U, cut off at one."""
        if self.num_streams == 1:
            return matrix.new_zeros(len(matrix), 0)
        basis = zero_sum_basis(matrix, self.num_streams)
        left, values, right = torch.linalg.svd(basis.mT @ matrix @ basis)
        m = self.num_streams - 1
        row, column = torch.triu_indices(m, m, offset=1, device=matrix.device)
        # Signs of the vectors are free, as tanh(z) takes any: they are chosen such that A is moderate.
        skew_parts = [-inverse_cayley(factor) for factor in (left.mT, right)]
        signs = [(cayley(a) * factor).sum(-2).sign() for a, factor in zip(skew_parts, (left, right.mT), strict=True)]
        most = 1 - torch.finfo(torch.float64).eps
        z = (values.clamp(max=most) * signs[0] * signs[1]).atanh()
        return torch.cat((z, *(a[..., row, column] for a in skew_parts)), dim=-1)


def zero_sum_basis(like: Tensor, size: int) -> Float[Tensor, "d m"]:
    r"""Orthonormal vectors that sum to zero (Helmert): the k-th is (1, ..., 1, -k, 0, ..., 0) with k ones, normed."""
    k = torch.arange(1, size, dtype=like.dtype, device=like.device)
    place = torch.arange(size, dtype=like.dtype, device=like.device)[:, None]
    return ((place < k).to(like) - k * (place == k)) / (k * (k + 1)).sqrt()
