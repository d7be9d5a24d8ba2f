"""The toy model: one batch of many targets is as many trainings of one, and its floors are those of least squares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gomhc import Orthostochastic, Permutations, Unconstrained
from gomhc.birkhoff import SAMPLERS
from gomhc.lab.experiments.stream_mixer import (
    MixingTask,
    draw_problem,
    lowest_loss,
    nearest_with_unit_sums,
    quadratic,
    sparse_inputs,
    start_logits,
    train,
)

SMALL = MixingTask(num_streams=3, num_targets=4, num_samples=20)


def samples(task: MixingTask, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Target, inputs and outputs, in the order in which `draw_problem` draws them."""
    generator = torch.Generator().manual_seed(seed)
    target = SAMPLERS[task.targets](task.num_streams, task.num_targets, generator)
    torch.randn(target.shape, generator=generator, dtype=target.dtype)  # the noise of the projector, here times zero
    inputs = sparse_inputs(task, generator)
    noise = task.noise * torch.rand(inputs.shape, generator=generator, dtype=torch.float64)
    return target, inputs, inputs @ target.mT + noise


def test_quadratic_is_the_mean_squared_error_of_the_samples() -> None:
    problem = draw_problem(SMALL, torch.Generator().manual_seed(0))
    target, inputs, outputs = samples(SMALL)
    matrix = torch.rand(4, 3, 3, dtype=torch.float64)
    expected = (inputs @ matrix.mT - outputs).square().mean((1, 2))
    torch.testing.assert_close(quadratic(matrix - target, problem), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_batched_training_equals_one_target_at_a_time(optimizer: str) -> None:
    go = Orthostochastic(num_streams=3)
    task = replace(SMALL, num_epochs=50, learning_rate=1e-2, optimizer=optimizer)  # type: ignore[arg-type]
    problem = draw_problem(SMALL, torch.Generator().manual_seed(0))
    _, inputs, outputs = samples(SMALL)
    start = start_logits(go, "uniform", 4, torch.Generator().manual_seed(1))
    batched = torch.stack([epoch.losses for epoch in train(go, task, problem, start)])
    for index in range(4):
        alone = plain_losses(go, start[index], inputs[index].float(), outputs[index].float(), task)
        torch.testing.assert_close(batched[:, index], alone, rtol=1e-4, atol=1e-7)


def plain_losses(go: Orthostochastic, start: Tensor, x: Tensor, y: Tensor, task: MixingTask) -> Tensor:
    """Training as the paper's code does it, for one target; its loss is divided as if there were others."""
    logits = start.clone().requires_grad_()
    kinds = {"adam": torch.optim.Adam([logits], lr=task.learning_rate, eps=task.epsilon),
             "sgd": torch.optim.SGD([logits], lr=task.learning_rate)}  # fmt: skip
    losses = []
    for _ in range(task.num_epochs + 1):
        loss = (x @ go(logits).T - y).square().mean()
        losses.append(loss.detach())
        kinds[task.optimizer].zero_grad()
        (loss / task.num_targets).backward()
        kinds[task.optimizer].step()
    return torch.stack(losses)


@pytest.mark.parametrize(("num_samples", "sparsity"), [(20, 0.0), (1, 0.0), (2, 0.9)])  # the last two do not span
def test_lowest_loss_is_that_of_constrained_least_squares(num_samples: int, sparsity: float) -> None:
    task = MixingTask(num_streams=3, num_targets=4, num_samples=num_samples, sparsity=sparsity, projector_noise=0.3)
    problem = draw_problem(task, torch.Generator().manual_seed(0))
    free = torch.zeros(4, 2, 2, dtype=torch.float64, requires_grad=True)

    def matrix() -> Tensor:
        last = 1 - free.sum(-1, keepdim=True)
        rows = torch.cat((free, last), dim=-1)
        return torch.cat((rows, 1 - rows.sum(-2, keepdim=True)), dim=-2)

    optimizer = torch.optim.LBFGS([free], max_iter=500, tolerance_grad=1e-14, tolerance_change=1e-16)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = quadratic(matrix() - problem.target, problem).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = quadratic(matrix().detach() - problem.target, problem)
    torch.testing.assert_close(lowest_loss(problem), found, rtol=1e-6, atol=1e-10)


def test_nearest_matrix_has_unit_sums() -> None:
    matrix = nearest_with_unit_sums(torch.randn(5, 4, 4, dtype=torch.float64))
    ones = torch.ones(5, 4, dtype=torch.float64)
    torch.testing.assert_close(matrix.sum(-1), ones)
    torch.testing.assert_close(matrix.sum(-2), ones)


def test_expected_loss_at_the_target_is_the_noise_floor() -> None:
    task = MixingTask(num_targets=64, num_samples=5000, noise=0.3)
    problem = draw_problem(task, torch.Generator().manual_seed(0))
    values = 64 * 5000 * 4
    deviation = (0.8 / values) ** 0.5  # of the mean of u², relative, u uniform
    assert problem.noise_power.mean().item() == pytest.approx(0.3**2 / 3, rel=5 * deviation)


def test_lowest_loss_falls_below_the_noise_floor_as_streams_grow() -> None:
    """Of the noise, only its variance e²/12 can be fitted: by (d - 1)² numbers to d N of them."""
    for d in (4, 32):
        task = MixingTask(num_streams=d, num_targets=16)
        problem = draw_problem(task, torch.Generator().manual_seed(0))
        share = (lowest_loss(problem) / problem.noise_power).mean().item()
        assert share == pytest.approx(1 - (d - 1) ** 2 / (4 * d * task.num_samples), abs=0.01)


def test_unconstrained_training_reaches_no_less_than_the_lowest_loss_minus_what_sums_cost() -> None:
    """A sanity check of both: mHC-lite covers the polytope, HC more."""
    task = replace(SMALL, num_epochs=400, learning_rate=0.1)
    problem = draw_problem(SMALL, torch.Generator().manual_seed(0))
    lowest = lowest_loss(problem)
    for method, may_undercut in ((Permutations(num_streams=3), False), (Unconstrained(num_streams=3), True)):
        start = start_logits(method, "normal", 4, torch.Generator().manual_seed(1))
        *_, last = train(method, task, problem, start)
        assert (last.losses.double() < lowest - 1e-6).any().item() is may_undercut


def test_masked_inputs_are_sparse_and_counted_ones_are_not() -> None:
    task = MixingTask(num_streams=8, sparsity=0.9)
    assert (sparse_inputs(task, torch.Generator().manual_seed(0)) == 0).double().mean().item() == pytest.approx(
        0.9, abs=0.01
    )
    counted = sparse_inputs(MixingTask(num_streams=8, inputs="count"), torch.Generator().manual_seed(0))
    assert counted.max() > 7
    assert (counted > 0).all()


def test_fixed_read_of_the_target_itself_has_the_loss_of_the_noise_alone() -> None:
    task = MixingTask(num_streams=3, num_targets=4, objective="read-fixed")
    problem = draw_problem(task, torch.Generator().manual_seed(0))
    perfect = Unconstrained(num_streams=3)
    first = next(train(perfect, task, problem, problem.target.float().flatten(1)))
    torch.testing.assert_close(first.losses.double(), problem.noise_power, rtol=1e-5, atol=1e-9)


def test_same_seed_trains_bitwise_the_same() -> None:
    def losses() -> Tensor:
        generator = torch.Generator().manual_seed(3)
        task = MixingTask(num_streams=3, num_targets=4, objective="matrix", num_epochs=20, seed=3)
        problem = draw_problem(task, generator)
        go = Orthostochastic(num_streams=3)
        start = start_logits(go, "difference", 4, generator)
        return torch.stack([e.losses for e in train(go, task, problem, start)])

    assert torch.equal(losses(), losses())


def test_near_identity_starts_are_near_it() -> None:
    start = start_logits(Orthostochastic(num_streams=4), "near-identity", 3, torch.Generator().manual_seed(0))
    diagonal = Orthostochastic(num_streams=4)(start).diagonal(dim1=-2, dim2=-1).mean(-1)
    torch.testing.assert_close(diagonal, torch.full((3,), 0.9), atol=1e-3, rtol=0)


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="sinkhorn-uniform"):
        MixingTask(targets="gaussian")
    with pytest.raises(ValueError, match="sparsity"):
        MixingTask(sparsity=1.0)


def test_problem_of_the_published_inputs_is_larger_by_the_square_of_the_streams() -> None:
    tasks = MixingTask(num_streams=5), MixingTask(num_streams=5, inputs="count")
    usual, counted = (draw_problem(task, torch.Generator().manual_seed(0)) for task in tasks)
    torch.testing.assert_close(counted.input_moment, 25 * usual.input_moment)


def test_learned_read_moves_as_autograd_says() -> None:
    task = replace(SMALL, objective="read-learned", num_epochs=30, learning_rate=1e-2, seed=5)
    go = Orthostochastic(num_streams=3)
    problem = draw_problem(task, torch.Generator().manual_seed(0))
    start = start_logits(go, "uniform", 4, torch.Generator().manual_seed(1))
    found = torch.stack([epoch.losses for epoch in train(go, task, problem, start)])
    read = problem.read.float() + 0.1 * torch.randn(4, 3, generator=torch.Generator().manual_seed(5))
    logits, read = start.clone().requires_grad_(), read.requires_grad_()
    optimizer = torch.optim.Adam([logits, read], lr=1e-2, eps=1e-6)
    _, inputs, outputs = samples(task)
    wanted = torch.einsum("ti, tni -> tn", problem.read, outputs)
    for epoch in range(31):
        mixed = inputs.float() @ go(logits).mT
        losses = (torch.einsum("ti, tni -> tn", read, mixed) - wanted.float()).square().mean(1)
        torch.testing.assert_close(found[epoch], losses.detach(), rtol=1e-4, atol=1e-7)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
