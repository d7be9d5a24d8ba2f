r"""Four maps from n (n - 1) / 2 free reals onto the orthogonal group, up to signs of columns.

Zero logits give a diagonal matrix of signs, whose square is the identity. The paper uses `cayley` and leaves the others
as an open question. n = size of the rotation
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from gomhc.kernels.plain_map import cayley as cayley_transform
from gomhc.kernels.plain_map import polish, skew, upper_triangle
from gomhc.shapes import Float

RotationName = Literal["cayley", "exponential", "householder", "givens"]


def cayley(logits: Float[Tensor, "*batch p"], size: int) -> Float[Tensor, "*batch n n"]:
    r"""Q = (I - A)(I + A)^{-1}: every rotation without the eigenvalue -1, and those in the limit."""
    return cayley_transform(skew(logits, size))


def exponential(logits: Float[Tensor, "*batch p"], size: int) -> Float[Tensor, "*batch n n"]:
    r"""Q = exp(A): every rotation."""
    return polish(torch.linalg.matrix_exp(skew(logits, size)))


def householder(logits: Float[Tensor, "*batch p"], size: int) -> Float[Tensor, "*batch n n"]:
    r"""Q = H_1 ... H_{n-1},  H_k = I - 2 v v^T / v^T v,  v = (0, ..., 0, 1, z): every orthogonal matrix, up to signs.

    The k-th vector has its one at place k and n - k free reals below, as in LAPACK's QR decomposition.
    """
    vectors = torch.eye(size, dtype=logits.dtype, device=logits.device) + upper_triangle(logits, size, offset=1)
    q = torch.eye(size, dtype=logits.dtype, device=logits.device).expand(*logits.shape[:-1], size, size)
    for k in range(size - 1):
        v = vectors[..., k, :]
        v = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        q = q - 2 * (q @ v[..., None]) * v[..., None, :]
    return polish(q)


def givens(logits: Float[Tensor, "*batch p"], size: int) -> Float[Tensor, "*batch n n"]:
    r"""Q = product of the n (n - 1) / 2 plane rotations by the angles z (Hurwitz angles): every rotation, up to signs.

    They stand in the order in which Givens' QR decomposition removes them, which reaches every rotation and has all
    planes at the identity. Those of planes (j, i) with equal i + j are disjoint and turn together.
    """
    q = torch.eye(size, dtype=logits.dtype, device=logits.device).expand(*logits.shape[:-1], size, size)
    used = 0
    for total in range(1, 2 * size - 2):
        j = torch.arange(max(0, total - size + 1), (total + 1) // 2, device=logits.device)
        i = total - j
        angles = logits[..., used : used + len(j)]
        used += len(j)
        cosine, sine = angles.cos()[..., None], angles.sin()[..., None]
        upper, lower = q[..., j, :], q[..., i, :]
        turned = torch.cat((cosine * upper - sine * lower, sine * upper + cosine * lower), dim=-2)
        q = q.index_copy(-2, torch.cat((j, i)), turned)
    return polish(q)


ROTATIONS: dict[RotationName, Callable[[Tensor, int], Tensor]] = {
    "cayley": cayley,
    "exponential": exponential,
    "householder": householder,
    "givens": givens,
}
"""Name -> the map from logits and n to the rotation."""
