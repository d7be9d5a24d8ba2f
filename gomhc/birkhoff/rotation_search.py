r"""Rotations with blocks of given norms, and the skew matrices that make them: where fits of rotations start.

Alternating projections between the matrices whose blocks have ||Q_ij||_F^2 = s M_ij and the orthogonal ones, and then
the inverse of the Cayley transform, A = (I - Q)(I + Q)^{-1}. All of it works for unitary matrices too.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

import torch
from torch import Tensor

from gomhc.shapes import Float, Inexact

NUM_STARTS = 8
NUM_PROJECTIONS = 20


def rotations_with_block_norms(
    target: Float[Tensor, "batch d d"], expressivity: int, dtype: torch.dtype
) -> Inexact[Tensor, "batch starts n n"]:
    """Orthogonal (in a complex dtype: unitary) matrices with nearly such blocks, from the same starts every time."""
    d, n = target.shape[-1], target.shape[-1] * expressivity
    generator = torch.Generator("cpu").manual_seed(0)
    gaussian = torch.randn(NUM_STARTS, n, n, dtype=dtype, generator=generator, device="cpu").to(target.device)
    q = nearest_orthogonal(gaussian).expand(len(target), -1, -1, -1)
    norms = (expressivity * target.clamp(min=0)).sqrt()[:, None, :, None, :, None]
    for _ in range(NUM_PROJECTIONS):
        blocks = q.unflatten(-1, (d, -1)).unflatten(-3, (d, -1))
        now = torch.linalg.vector_norm(blocks, dim=(-3, -1), keepdim=True)
        scaled = blocks * (norms / now.clamp(min=torch.finfo(now.dtype).tiny))
        q = nearest_orthogonal(scaled.flatten(-4, -3).flatten(-2, -1))
    return q


def nearest_orthogonal(matrix: Inexact[Tensor, "*batch n n"]) -> Inexact[Tensor, "*batch n n"]:
    """The orthogonal factor of the polar decomposition."""
    u, _, vh = torch.linalg.svd(matrix)
    return u @ vh


def inverse_cayley(q: Inexact[Tensor, "*batch n n"]) -> Inexact[Tensor, "*batch n n"]:
    r"""A with |(I - A)(I + A)^{-1}| = |Q| entry by entry, and moderate entries.

    The transform misses rotations with the eigenvalue -1. Signs (or phases) of rows are free here, for only moduli
    count: D is chosen by elimination so that each pivot of D + Q has modulus one at least; then A comes from D^* Q.
    """
    remainder, phases = q, []
    for k in range(q.shape[-1]):
        pivot = remainder[..., k, k]
        phases.append(torch.where(pivot == 0, 1, torch.sgn(pivot)))
        column, row = remainder[..., :, k, None], remainder[..., k, None, :]
        remainder = remainder - column * row / (pivot + phases[-1])[..., None, None]
    q = torch.stack(phases, dim=-1).conj()[..., None] * q
    identity = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    return torch.linalg.solve(identity + q, identity - q)
