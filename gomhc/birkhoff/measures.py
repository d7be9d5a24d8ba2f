"""Measures of a matrix that mixes streams: exactness, gain, spectrum and distances.

Each takes matrices (*batch, d, d) and returns one number per matrix, unless it says otherwise. d = num_streams
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from gomhc.shapes import Complex, Float

LARGEST_GAUGE = 4
"""The most streams whose sign patterns are tried one by one: 2^9 of them; five would need 2^16."""


class Gain(NamedTuple):
    """Largest amplification of a signal (forward) and of a gradient (backward)."""

    forward: Float[Tensor, "*batch"]
    backward: Float[Tensor, "*batch"]


def marginal_error(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """Return the largest distance of a row or column sum from one."""
    sums = torch.cat((matrix.sum(-1), matrix.sum(-2)), dim=-1)
    return (sums - 1).abs().amax(-1)


def amax_gain(matrix: Float[Tensor, "*batch d d"]) -> Gain:
    """Return the largest absolute row sum (forward) and column sum (backward): one for doubly stochastic matrices."""
    return Gain(matrix.abs().sum(-1).amax(-1), matrix.abs().sum(-2).amax(-1))


def composite(matrices: Float[Tensor, "*batch depth d d"]) -> Float[Tensor, "*batch d d"]:
    """H_{l -> L} = H_{L-1} ... H_{l+1} H_l: what all layers do together, the first applied first."""
    *_, d = matrices.shape
    result = torch.eye(d, dtype=matrices.dtype, device=matrices.device).expand(*matrices.shape[:-3], d, d)
    for matrix in matrices.unbind(-3):
        result = matrix @ result
    return result


def spectrum(matrix: Float[Tensor, "*batch d d"]) -> Complex[Tensor, "*batch d"]:
    """Return all eigenvalues, largest modulus first."""
    eigenvalues = torch.linalg.eigvals(matrix)
    return eigenvalues.gather(-1, eigenvalues.abs().argsort(dim=-1, descending=True))


def second_eigenvalue(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """Return the second largest modulus of an eigenvalue: how much of the differences between streams is kept.

    It is zero for one stream.
    """
    moduli = spectrum(matrix).abs()
    return moduli[..., 1] if moduli.shape[-1] > 1 else torch.zeros_like(moduli[..., 0])


def distance_to_identity(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """||B - I||_F."""
    return torch.linalg.matrix_norm(matrix - torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device))


def kl_divergence(target: Float[Tensor, "*batch d d"], matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """KL(T || B) of a row, on average, in nats (app. F.2); columns give the same value: the sum runs over all entries.

    The result is infinite if B has a zero where T has none.
    """
    matrix = matrix.where(target > 0, 1)  # entries where the target is zero add nothing, and have no gradient
    return (torch.xlogy(target, target) - torch.xlogy(target, matrix)).sum((-2, -1)) / target.shape[-1]


def geodesic_distance(a: Float[Tensor, "*batch d d"], b: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    r"""The angle in radians between the rotations behind two matrices (app. F.1).

        phi(A, B) = ||log((R^A)^T R^B)||_F / sqrt(2),    R^W = H * W^{1/2} with signs H that make it most orthogonal

    Signs of whole rows and columns are free (the gauge): the smallest angle over all of them is taken. A matrix that is
    not orthostochastic has no such R; the orthogonal matrix nearest to the best candidate stands for it.
    """
    d = a.shape[-1]
    if d > LARGEST_GAUGE:
        raise ValueError(f"geodesic_distance tries all sign patterns, for at most {LARGEST_GAUGE} streams, got {d}")
    rotation_a, rotation_b = orthogonal_root(a), orthogonal_root(b)
    signs = torch.tensor(list(product((1, -1), repeat=d)), dtype=a.dtype, device=a.device)
    gauged = signs[:, None, :, None] * rotation_b[..., None, None, :, :] * signs[None, :, None, :]
    relative = rotation_a.mT[..., None, None, :, :] @ gauged
    angles = torch.linalg.eigvals(relative).angle()
    # Only a rotation has a real logarithm; a reflection is one sign flip from a rotation, which is in the list too.
    lengths = (angles.square().sum(-1) / 2).sqrt().where(torch.linalg.det(relative) > 0, torch.inf)
    return lengths.flatten(-2).amin(-1)


def orthogonal_root(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """The orthogonal matrix whose squared entries come closest to `matrix`; all signs of the roots are tried."""
    d = matrix.shape[-1]
    free = torch.tensor(list(product((1, -1), repeat=(d - 1) ** 2)), dtype=matrix.dtype, device=matrix.device)
    # The signs of the first row and column are the gauge, and stay one.
    signs = torch.nn.functional.pad(free.reshape(len(free), d - 1, d - 1), (1, 0, 1, 0), value=1)
    roots = signs * matrix.clamp(min=0).sqrt()[..., None, :, :]
    excess = roots.mT @ roots - torch.eye(d, dtype=matrix.dtype, device=matrix.device)
    best = excess.square().sum((-2, -1)).argmin(-1)
    root = roots.take_along_dim(best[..., None, None, None], dim=-3).squeeze(-3)
    u, _, vh = torch.linalg.svd(root)
    return u @ vh
