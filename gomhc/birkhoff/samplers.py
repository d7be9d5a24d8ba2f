"""Random doubly stochastic matrices: the distributions of targets of app. A.4 and app. E.

Each returns (num_samples, d, d) in float64 on the generator's device. d = num_streams, s = expressivity
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from gomhc.birkhoff.permutation_matrices import permutation_matrices
from gomhc.kernels.plain_map import blockwise_squared_norm
from gomhc.shapes import Float

Matrices = Float[Tensor, "num_samples d d"]
Generator = torch.Generator | None


def sinkhorn_uniform(num_streams: int, num_samples: int, generator: Generator = None) -> Matrices:
    """Uniform entries, balanced by Sinkhorn-Knopp: the paper's targets unless it says otherwise."""
    entries = _empty(generator, num_samples, num_streams, num_streams)
    return balance(entries.uniform_(generator=generator))


def haar_orthogonal(num_streams: int, num_samples: int, generator: Generator = None, expressivity: int = 1) -> Matrices:
    r"""M_ij = ||Q_ij||_F^2 / s of a Haar-random orthogonal Q of size ds."""
    n = num_streams * expressivity
    gaussian = _empty(generator, num_samples, n, n).normal_(generator=generator)
    # QR leaves the signs of Q's columns to the algorithm, so Q is Haar only up to them; squares do not see them.
    return blockwise_squared_norm(torch.linalg.qr(gaussian).Q, num_streams)


def haar_unitary(num_streams: int, num_samples: int, generator: Generator = None, expressivity: int = 1) -> Matrices:
    r"""M_ij = ||U_ij||_F^2 / s of a Haar-random unitary U of size ds."""
    n = num_streams * expressivity
    gaussian = torch.view_as_complex(_empty(generator, num_samples, n, n, 2).normal_(generator=generator))
    unitary = torch.linalg.qr(gaussian).Q  # Haar up to the phases of its columns, which squares do not see
    return blockwise_squared_norm(unitary.real, num_streams) + blockwise_squared_norm(unitary.imag, num_streams)


def dirichlet_permutations(num_streams: int, num_samples: int, generator: Generator = None) -> Matrices:
    r"""M = sum_k w_k P_k over all d! permutations, with w uniform on the simplex (Dirichlet, concentration one)."""
    vertices = permutation_matrices(num_streams, _empty(generator))
    exponential = _empty(generator, num_samples, len(vertices)).exponential_(generator=generator)
    return torch.einsum("nk, kij -> nij", exponential / exponential.sum(-1, keepdim=True), vertices)


def permutation_pair(num_streams: int, num_samples: int, generator: Generator = None) -> Matrices:
    """The mean of two random permutations: a point on the boundary of the polytope (app. E)."""
    keys = _empty(generator, 2, num_samples, num_streams).uniform_(generator=generator)
    return torch.eye(num_streams, dtype=keys.dtype, device=keys.device)[keys.argsort(-1)].mean(0)


SAMPLERS: dict[str, Callable[..., Matrices]] = {
    "sinkhorn-uniform": sinkhorn_uniform,
    "haar-orthogonal": haar_orthogonal,
    "haar-unitary": haar_unitary,
    "dirichlet-permutations": dirichlet_permutations,
    "permutation-pair": permutation_pair,
}


def sinkhorn_off_diagonal(num_streams: int, num_samples: int, generator: Generator = None) -> Matrices:
    """Uniform entries off the diagonal and zeros on it, balanced; for one stream, which has no such matrix, a one."""
    entries = _empty(generator, num_samples, num_streams, num_streams).uniform_(generator=generator)
    if num_streams == 1:
        return torch.ones_like(entries)
    return balance(entries - torch.diag_embed(entries.diagonal(dim1=-2, dim2=-1)))


def balance(matrix: Float[Tensor, "*batch d d"], num_iterations: int = 10_000) -> Float[Tensor, "*batch d d"]:
    """Normalise rows and columns of a positive matrix in turn until their sums are one to rounding (Sinkhorn-Knopp).

    Warns if the sums are not one after the last iteration.

    Args:
        matrix: a matrix with positive entries.
        num_iterations: maximum number of iterations.

    Shape:
        - matrix: (*batch, d, d)
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.birkhoff.balance(torch.ones(3, 3))[0, 0]
        tensor(0.3333)
    """
    tolerance = 4 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps
    for _ in range(num_iterations):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
        if matrix.numel() == 0 or (matrix.sum(-1) - 1).abs().max() <= tolerance:
            return matrix
    error = (matrix.sum(-1) - 1).abs().max().item()
    if not error <= torch.finfo(matrix.dtype).eps ** 0.5:
        warnings.warn(
            f"after {num_iterations} iterations sums are off by {error:.2g}; the matrix may be nearly sparse",
            stacklevel=2,
        )
    return matrix


def _empty(generator: Generator, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float64, device=generator.device if generator is not None else "cpu")
