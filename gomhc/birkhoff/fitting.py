"""Search for the logits whose matrix is closest to a given one, for maps without an inverse in closed form.

    minimise ||B(z) - M||_F^2 over z:    z <- z - J^T (J J^T + t I)^{-1} vec(B(z) - M)

Levenberg-Marquardt in its dual form, whose system has the size d² of the matrix however many logits there are. All
targets and all starts are one batch; each keeps its own damping t. d = num_streams, p = num_logits
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gomhc.shapes import Float

NUM_STARTS = 8
NUM_STEPS = 100
DAMPING_AT_START, DAMPING_AT_REST = 1e-2, 1e6
LARGEST_JACOBIAN = 2**24
"""Largest number of entries of Jacobians in memory at once; targets beyond it are fitted in turn."""

MatrixMap = Callable[[Tensor], Tensor]


def closest_logits(
    matrix_of: MatrixMap, starts: Float[Tensor, "batch starts p"], target: Float[Tensor, "batch d d"]
) -> Float[Tensor, "batch p"]:
    """For each target, the best of the searches from its starts."""
    _, num_starts, num_logits = starts.shape
    if num_logits == 0 or len(target) == 0:
        return starts[:, 0]
    size = max(1, LARGEST_JACOBIAN // (num_starts * num_logits * target[0].numel()))
    chunks = zip(starts.split(size), target.split(size), strict=True)
    return torch.cat([_best(matrix_of, *chunk) for chunk in chunks])


def random_starts(num_logits: int, target: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch starts p"]:
    """Standard normal starts, the same for each target and in every call."""
    generator = torch.Generator("cpu").manual_seed(0)
    starts = torch.randn(NUM_STARTS, num_logits, generator=generator, dtype=target.dtype, device="cpu")
    return starts.to(target.device).expand(len(target), -1, -1)


def _best(matrix_of: MatrixMap, starts: Tensor, target: Tensor) -> Tensor:
    targets = target.repeat_interleave(starts.shape[1], dim=0)
    logits, loss = _levenberg_marquardt(matrix_of, starts.flatten(0, 1), targets)
    best = loss.reshape(starts.shape[:2]).argmin(dim=1)
    return logits.reshape(starts.shape)[torch.arange(len(target), device=best.device), best]


def _levenberg_marquardt(matrix_of: MatrixMap, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    def residual(z: Tensor, matrix: Tensor) -> Tensor:
        return (matrix_of(z) - matrix).flatten(-2)

    jacobian = vmap(jacrev(residual))
    error = residual(logits, target)
    loss = error.square().sum(-1)
    damping = torch.full_like(loss, DAMPING_AT_START)
    identity = torch.eye(error.shape[-1], dtype=error.dtype, device=error.device)
    for _ in range(NUM_STEPS):
        slope = jacobian(logits, target)
        system = slope @ slope.mT + damping[:, None, None] * identity
        step = slope.mT @ torch.linalg.solve_ex(system, error[..., None]).result
        trial = logits - step.squeeze(-1)
        trial_error = residual(trial, target)
        trial_loss = trial_error.square().sum(-1)
        better = trial_loss < loss  # false for a trial that is not finite
        logits = torch.where(better[:, None], trial, logits)
        error = torch.where(better[:, None], trial_error, error)
        loss = torch.where(better, trial_loss, loss)
        damping = torch.where(better, damping / 5, damping * 3)
        if damping.min() > DAMPING_AT_REST:  # no search has improved for a long while
            break
    return logits, loss
