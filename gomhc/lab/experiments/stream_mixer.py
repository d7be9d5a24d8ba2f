r"""The toy model of the convergence section: a mixing learns random target matrices.

    y_j = T x_j + xi,  xi ~ e U(0, 1);    L = mean over samples and streams of (B(z) x_j - y_j)²

Many targets T are one batch of matrices, each with its own logits z, inputs, noise and start. Adam and SGD act on each
number by itself, so one optimizer trains all of them as if each were alone (the loss is averaged over targets, as in
the paper's code, so gradients are divided by their number; Adam's epsilon sees that).

The loss is a quadratic of D = B - T, so the samples enter through two small matrices, computed once:

    L = <D S, D> - 2 <D, C> + c,    S = sum_j x_j x_j^T / (N d),  C = sum_j xi_j x_j^T / (N d),  c = mean xi²

d = num_streams, N = num_samples, e = noise
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gomhc.birkhoff import SAMPLERS, Parametrization
from gomhc.shapes import Float

LogitStart = Literal["normal", "uniform", "difference", "near-identity"]
"""Logits at first: standard normal, uniform in [0, 1), the difference of two such, or those of a matrix near I."""
Objective = Literal["streams", "matrix", "read-fixed", "read-learned"]
Optimizer = Literal["adam", "sgd"]


@dataclass(frozen=True, kw_only=True)
class MixingTask:
    """What a matrix has to learn, and how it is trained."""

    num_streams: int = 4
    """Streams of each matrix (d)."""

    num_targets: int = 64
    """Number of matrices that are learned side by side."""

    num_samples: int = 100
    """Input vectors for each of them (N)."""

    noise: float = 0.1
    """Magnitude of the noise on outputs (e)."""

    targets: str = "sinkhorn-uniform"
    """Distribution of the target matrices: a name in SAMPLERS."""

    target_expressivity: int | None = None
    """Block size of the Haar targets (s); None for the other distributions."""

    sparsity: float = 0.0
    """Probability that an input is zero."""

    inputs: Literal["mask", "count"] = "mask"
    """How sparse inputs are made: times the mask, or as in the published code times the number of entries it keeps."""

    projector_noise: float = 0.0
    """Standard deviation of Gaussian noise on the target matrix itself, which so leaves the polytope (app. B.2)."""

    objective: Objective = "streams"
    """Compare outputs, or matrices under noise that is drawn anew each epoch (app. A.5.2), or one stream that is read
    from the outputs with the target's weights or with learned ones (app. C). Matrices report their expected loss."""

    num_epochs: int = 10_000
    """Steps of the optimizer, each over all samples."""

    learning_rate: float = 1e-3
    """Step size (eta)."""

    optimizer: Optimizer = "adam"

    epsilon: float = 1e-6
    """Adam's epsilon."""

    seed: int = 0
    """Seed of targets, inputs, noise and starts."""

    def __post_init__(self) -> None:
        if self.targets not in SAMPLERS:
            raise ValueError(f"targets must be one of {', '.join(SAMPLERS)}, got {self.targets!r}")
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity must be in [0, 1), got {self.sparsity}")


class Problem(NamedTuple):
    """The quadratic of each target: everything that training needs to know of the samples."""

    target: Float[Tensor, "targets d d"]
    input_moment: Float[Tensor, "targets d d"]
    """S"""
    noise_moment: Float[Tensor, "targets rows d"]
    """C; one row where a single stream is read."""
    noise_power: Float[Tensor, " targets"]
    """c"""
    read: Float[Tensor, "targets d"]
    """Weights by which a single stream is read; of no effect where outputs are compared."""


def draw_problem(task: MixingTask, generator: torch.Generator) -> Problem:
    """Targets, inputs and noise, reduced to what the loss needs of them."""
    d, shape = task.num_streams, (task.num_targets, task.num_samples, task.num_streams)
    options = {} if task.target_expressivity is None else {"expressivity": task.target_expressivity}
    target = SAMPLERS[task.targets](d, task.num_targets, generator, **options)
    target = target + task.projector_noise * torch.randn(target.shape, generator=generator, dtype=target.dtype)
    inputs = sparse_inputs(task, generator)
    noise = task.noise * torch.rand(shape, generator=generator, dtype=torch.float64)
    read = torch.rand(task.num_targets, d, generator=generator, dtype=torch.float64)
    if task.objective.startswith("read"):
        noise = torch.einsum("ti, tni -> tn", read, noise)[..., None]
    rows = noise.shape[-1]
    return Problem(
        target=target,
        input_moment=torch.einsum("tni, tnj -> tij", inputs, inputs) / (task.num_samples * rows),
        noise_moment=torch.einsum("tni, tnj -> tij", noise, inputs) / (task.num_samples * rows),
        noise_power=noise.square().mean((1, 2)),
        read=read,
    )


def sparse_inputs(task: MixingTask, generator: torch.Generator) -> Float[Tensor, "targets samples d"]:
    """Uniform in [0, 1), some of them zero."""
    shape = (task.num_targets, task.num_samples, task.num_streams)
    inputs = torch.rand(shape, generator=generator, dtype=torch.float64)
    kept = (torch.rand(shape, generator=generator, dtype=torch.float64) >= task.sparsity).to(inputs.dtype)
    return inputs * (kept if task.inputs == "mask" else kept.sum(-1, keepdim=True))


def lowest_loss(problem: Problem) -> Float[Tensor, " targets"]:
    r"""The least that any matrix with unit row and column sums can reach on these samples, outputs compared.

    That of the polytope too wherever it is nonnegative. With U an orthonormal basis of the vectors of zero sum, D is
    T's own excess over unit sums plus U F U^T; the quadratic is least at F = (U^T (C - E S) U)(U^T S U)^+, where the
    pseudo-inverse is one but for inputs that do not span the space, as few and sparse ones may not.
    """
    d = problem.target.shape[-1]
    ones = torch.full((d, 1), d**-0.5, dtype=torch.float64)
    basis = torch.linalg.qr(torch.cat((ones, torch.eye(d, dtype=torch.float64)[:, : d - 1]), dim=1)).Q[:, 1:]
    excess = nearest_with_unit_sums(problem.target) - problem.target
    gradient = basis.T @ (problem.noise_moment - excess @ problem.input_moment) @ basis
    free = gradient @ torch.linalg.pinv(basis.T @ problem.input_moment @ basis, rtol=1e-12, hermitian=True)
    return quadratic(excess + basis @ free @ basis.T, problem)


def nearest_with_unit_sums(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """The matrix closest to this one whose rows and columns sum to one; some entries may be negative."""
    rows, columns, total = matrix.mean(-1, keepdim=True), matrix.mean(-2, keepdim=True), matrix.mean((-2, -1), True)
    return matrix - rows - columns + total + 1 / matrix.shape[-1]


def quadratic(difference: Float[Tensor, "targets rows d"], problem: Problem) -> Float[Tensor, " targets"]:
    """L = <D S, D> - 2 <D, C> + c."""
    return _quadratic(difference, problem)[0]


def _quadratic(difference: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """L, and its gradient 2 (D S - C)."""
    half = torch.baddbmm(problem.noise_moment, difference, problem.input_moment, beta=-1)
    losses = ((half - problem.noise_moment) * difference).sum((-2, -1)) + problem.noise_power
    return losses, 2 * half


class Epoch(NamedTuple):
    """One step of all targets: the losses before it and the matrices that have them."""

    losses: Float[Tensor, " targets"]
    matrices: Float[Tensor, "targets d d"]


def start_logits(
    parametrization: Parametrization, start: LogitStart, num_targets: int, generator: torch.Generator
) -> Float[Tensor, "targets p"]:
    """Random logits to start from, different for each target."""
    shape = (num_targets, parametrization.num_logits)
    if start == "near-identity":
        return torch.stack([parametrization.initial_logits(generator) for _ in range(num_targets)])
    if start == "normal":
        return torch.randn(shape, generator=generator)
    uniform = torch.rand(shape, generator=generator)
    return uniform if start == "uniform" else uniform - torch.rand(shape, generator=generator)


def train(mixing: Parametrization, task: MixingTask, problem: Problem, start: Tensor) -> Iterator[Epoch]:
    """Train all targets from `start`, and yield each epoch's losses; the last ones are those of the trained matrices.

    What is yielded is detached. Noise that is drawn anew each epoch and the read's start have the task's seed.
    """
    generator = torch.Generator().manual_seed(task.seed)
    problem = Problem(*(part.float() for part in problem))
    logits = start.clone().requires_grad_(mixing.num_logits > 0)
    read = problem.read.clone()
    if task.objective == "read-learned":
        read += 0.1 * torch.randn(read.shape, generator=generator)
    step = OPTIMIZERS[task.optimizer](task, logits.detach(), read)
    for epoch in range(task.num_epochs + 1):
        matrices = mixing.matrix(logits)
        with torch.no_grad():
            evaluated = _evaluate(task, problem, matrices.detach(), read, generator)
        yield Epoch(evaluated.losses, matrices.detach())
        if epoch == task.num_epochs or not matrices.requires_grad:
            continue
        (slope,) = torch.autograd.grad(matrices, logits, evaluated.matrices / task.num_targets)
        step(slope, evaluated.read / task.num_targets)


class _Evaluated(NamedTuple):
    """Losses, and the gradient of their sum at the matrices and at the weights of the read."""

    losses: Tensor
    matrices: Tensor
    read: Tensor


def _evaluate(
    task: MixingTask, problem: Problem, matrices: Tensor, read: Tensor, generator: torch.Generator
) -> _Evaluated:
    """The derivatives by hand: for matrices this small, autograd would take longer than all else."""
    unused = torch.zeros_like(read)
    if task.objective == "streams":
        return _Evaluated(*_quadratic(matrices - problem.target, problem), unused)
    if task.objective == "matrix":
        return _Evaluated(*_matrix_loss(matrices - problem.target, task.noise, generator), unused)
    wanted = torch.einsum("ti, tij -> tj", problem.read, problem.target)
    losses, slope = _quadratic((torch.einsum("ti, tij -> tj", read, matrices) - wanted)[:, None], problem)
    at_read = (matrices @ slope.mT)[..., 0] if task.objective == "read-learned" else unused
    return _Evaluated(losses, read[..., None] * slope, at_read)


def _matrix_loss(difference: Tensor, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mean over entries of (D - xi)², and its gradient; the loss is what it is on average, for sums of D are zero."""
    entries = difference[0].numel()
    drawn = noise * torch.rand(difference.shape, generator=generator)
    return difference.square().mean((1, 2)) + noise**2 / 3, 2 * (difference - drawn) / entries


Step = Callable[[Tensor, Tensor], None]
"""Gradients at the logits and at the read -> both are moved."""


def _adam(task: MixingTask, *parameters: Tensor) -> Step:
    """As torch.optim.Adam, whose step takes as long as the rest of an epoch of matrices this small."""
    means = [torch.zeros_like(parameter) for parameter in parameters]
    squares = [torch.zeros_like(parameter) for parameter in parameters]
    count = itertools.count(1)

    def step(*slopes: Tensor) -> None:
        t = next(count)
        for parameter, mean, square, slope in zip(parameters, means, squares, slopes, strict=True):
            mean.lerp_(slope, 1 - 0.9)
            square.mul_(0.999).addcmul_(slope, slope, value=1 - 0.999)
            deviation = (square / (1 - 0.999**t)).sqrt_().add_(task.epsilon)
            parameter.addcdiv_(mean, deviation, value=-task.learning_rate / (1 - 0.9**t))

    return step


def _sgd(task: MixingTask, *parameters: Tensor) -> Step:
    def step(*slopes: Tensor) -> None:
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.sub_(slope, alpha=task.learning_rate)

    return step


OPTIMIZERS: dict[Optimizer, Callable[..., Step]] = {"adam": _adam, "sgd": _sgd}
