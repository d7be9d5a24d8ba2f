r"""The go-mHC map from logits to doubly stochastic matrices in plain torch: the oracle of the fast versions.

    A = skew(z),    Q = (I - A)(I + A)^{-1},    B_ij = (1/s) ||Q_ij||_F^2

d = num_streams, s = expressivity, n = d * s, p = n (n - 1) / 2
"""

from __future__ import annotations

import torch
from torch import Tensor

from gomhc.kernels.precision import widened
from gomhc.shapes import Float

SATURATION = 2.0**16
"""The largest logit: a larger one, or an infinite one, counts as this. It is in native/tasks.h too."""


NEWTON_STEPS = {torch.float64: 1, torch.float32: 3}
"""Steps of `polish` that make rotations orthogonal to rounding: at the largest logits, float32 leaves them 1e-2 off."""


def orthostochastic(logits: Float[Tensor, "*batch p"], num_streams: int, expressivity: int) -> Tensor:
    """B of the equation above, in the dtype of `logits`, computed in float64.

    Float64 because ||(I + A)^{-1}|| is at most one but I + A is as ill-conditioned as the logits are large. On a device
    without float64 (MPS), float32 gives sums that are one to rounding at any logits, but entries that are off by up to
    1e-6, and gradients by a share of 1e-5, at logits of 10: both grow with the logits.
    """
    rotation = cayley(skew(widened(saturated(logits)), num_streams * expressivity))
    return blockwise_squared_norm(rotation, num_streams).to(logits.dtype)


def saturated(logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch p"]:
    """Logits between -SATURATION and SATURATION, with zero gradient beyond."""
    limit = min(SATURATION, torch.finfo(logits.dtype).max)
    return logits.clamp(-limit, limit)


def skew(logits: Float[Tensor, "*batch p"], size: int) -> Float[Tensor, "*batch n n"]:
    """The skew-symmetric matrix whose upper triangle, row by row, is `logits`."""
    upper = upper_triangle(logits, size, offset=1)
    return upper - upper.mT


def upper_triangle(logits: Float[Tensor, "*batch p"], size: int, offset: int) -> Float[Tensor, "*batch n n"]:
    """`logits`, row by row, on and above the diagonal number `offset`; zeros below."""
    row, column = torch.triu_indices(size, size, offset=offset, device=logits.device)
    zeros = logits.new_zeros(*logits.shape[:-1], size * size)
    return zeros.index_copy(-1, row * size + column, logits).unflatten(-1, (size, size))


def cayley(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""The rotation Q = (I - A)(I + A)^{-1} = 2K - I of a skew-symmetric A, with K = (I + A)^{-1}.

    I + A has symmetric part I, so it is never singular, and K is all that the gradient needs: dA = -2 K^T dQ K^T.
    """
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    k = torch.linalg.inv_ex(identity + a).inverse  # inv would raise for a whole batch when one element holds NaN
    return polish(2 * k - identity)


def polish(q: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Newton-Schulz steps Q (3I - Q^T Q) / 2 towards the nearest orthogonal matrix: each squares the distance.

    Their derivative along rotations is the identity, so the gradient passes as if they were not there.
    """
    identity = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    for _ in range(NEWTON_STEPS[q.dtype]):
        q = q + (q @ (identity - q.mT @ q) / 2).detach()
    return q


def blockwise_squared_norm(q: Float[Tensor, "*batch n n"], num_streams: int) -> Float[Tensor, "*batch d d"]:
    r"""Phi_{d,s}(Q)_ij = (1/s) ||Q_ij||_F^2 over the s x s blocks of Q (eq. 5)."""
    s = q.shape[-1] // num_streams
    blocks = q.unflatten(-1, (num_streams, s)).unflatten(-3, (num_streams, s))
    return blocks.square().sum((-3, -1)) / s
