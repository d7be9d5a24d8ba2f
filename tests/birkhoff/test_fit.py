"""Fits find the logits of a matrix, or say how far they stay away."""

from __future__ import annotations

import pytest
import torch
from random_logits import random_logits
from variants import ALL, EXACT, REGISTERED, each

from gomhc import (
    BoundedOffDiagonal,
    Identity,
    Kronecker,
    Orthogonal,
    Orthostochastic,
    Permutations,
    RowStochastic,
    SpectralSphere,
)
from gomhc.birkhoff import SAMPLERS
from gomhc.birkhoff.samplers import haar_orthogonal, permutation_pair, sinkhorn_uniform

OTHERS = [cls(num_streams=4) for cls in (BoundedOffDiagonal, Orthogonal, RowStochastic, SpectralSphere)]
COVERING = [parametrization for parametrization in ALL if parametrization.covers_polytope]


@pytest.mark.parametrize("sampler", SAMPLERS)
@each(COVERING)
def test_methods_that_cover_the_polytope_fit_any_matrix(parametrization, sampler, generator):
    target = SAMPLERS[sampler](parametrization.num_streams, 20, generator)
    assert parametrization.fit(target).distance.max() < 1e-5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_permutations_of_six_streams_fit_any_matrix(sampler, generator):
    assert Permutations(num_streams=6).fit(SAMPLERS[sampler](6, 5, generator)).distance.max() < 1e-5


@each([*EXACT, *OTHERS])
def test_what_it_expresses_it_finds_again(parametrization):
    target = parametrization(random_logits(parametrization, 10))
    found = parametrization.fit(target)
    assert found.logits.shape == (10, parametrization.num_logits)
    assert found.distance.median() < 1e-5  # one search in a few ends in a local minimum; the distance says so
    distance = torch.linalg.matrix_norm(parametrization(found.logits) - target)
    torch.testing.assert_close(found.distance, distance)


def test_go_with_two_by_two_blocks_reaches_random_targets_and_with_one_by_one_does_not(generator):
    """The paper's default against the orthostochastic boundary, on the paper's targets, d = 3, 4 and 8."""
    for d in (3, 4, 8):
        targets = sinkhorn_uniform(d, 10, generator)
        assert Orthostochastic(num_streams=d, expressivity=2).fit(targets).distance.max() < 1e-9
        assert Orthostochastic(num_streams=d, expressivity=1).fit(targets).distance.median() > 0.02


@pytest.mark.parametrize(("expressivity", "at_floor"), [(1, False), (2, True)])
def test_go_learns_the_toy_task_to_its_noise_floor_with_two_and_not_with_one(expressivity, at_floor, generator):
    """Y = T X + noise, noise uniform in [0, 0.1], learned by Adam from data alone: floor 0.1² / 3 (app. B.1)."""
    targets, x = sinkhorn_uniform(4, 16, generator), torch.randn(16, 4, 4000, generator=generator).double()
    y = targets @ x + 0.1 * torch.rand(16, 4, 4000, generator=generator).double()
    parametrization = Orthostochastic(num_streams=4, expressivity=expressivity)
    logits = torch.stack([parametrization.initial_logits(generator).double() for _ in targets]).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.02)
    for _ in range(400):
        loss = (parametrization(logits) @ x - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (loss.item() == pytest.approx(0.1**2 / 3, rel=0.02)) == at_floor


def test_half_of_two_permutations_needs_an_even_expressivity():
    """The mean of the identity and a 4-cycle is the mean of rotations' blocks of rank s / 2, or it is none."""
    cycle = torch.eye(4, dtype=torch.float64).roll(1, dims=0)
    target = (torch.eye(4, dtype=torch.float64) + cycle) / 2
    assert Orthostochastic(num_streams=4, expressivity=2).fit(target).distance < 1e-6
    assert Orthostochastic(num_streams=4, expressivity=3).fit(target).distance > 0.05


@each([p for p in REGISTERED if not isinstance(p, Identity)])
def test_permutations_are_fitted_closely_wherever_a_method_can(parametrization, generator):
    identity = torch.eye(4, dtype=torch.float64)
    assert parametrization.fit(identity).distance < 1e-5
    if not isinstance(parametrization, Kronecker | Orthogonal | BoundedOffDiagonal):  # a 4-cycle is a reflection
        assert parametrization.fit(identity.roll(1, dims=0)).distance < 1e-5


def test_kronecker_cannot_fit_a_cycle_of_three_streams_among_four():
    cycle = torch.eye(4, dtype=torch.float64)[[1, 2, 0, 3]]
    assert Kronecker(num_streams=4).fit(cycle).distance > 0.5


def test_fits_are_the_same_every_time(generator):
    target = haar_orthogonal(3, 4, generator, expressivity=2)
    for parametrization in (Orthostochastic(num_streams=3), Kronecker(num_streams=3)):
        assert torch.equal(parametrization.fit(target).logits, parametrization.fit(target).logits)


def test_fit_keeps_batch_shape_and_dtype(generator):
    target = permutation_pair(3, 6, generator).float().reshape(2, 3, 3, 3)
    for parametrization in (Orthostochastic(num_streams=3), Permutations(num_streams=3)):
        found = parametrization.fit(target)
        assert found.logits.shape == (2, 3, parametrization.num_logits)
        assert found.distance.shape == (2, 3)
        assert found.logits.dtype == found.distance.dtype == torch.float32
        assert parametrization.fit(target[:0]).distance.shape == (0, 3)


@each(REGISTERED)
def test_fit_leaves_its_argument_alone(parametrization, generator):
    target = permutation_pair(4, 2, generator).requires_grad_()
    before = target.detach().clone()
    found = parametrization.fit(target)
    found.logits.add_(1)
    assert torch.equal(target, before)
    assert not found.distance.requires_grad


def test_fit_refuses_what_is_not_doubly_stochastic():
    parametrization = Orthostochastic(num_streams=3)
    with pytest.raises(ValueError, match=r"sums off by 2 .* gomhc.birkhoff.balance"):
        parametrization.fit(torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"smallest entry of -1"):
        parametrization.fit(torch.tensor([[1.0, 1, -1], [1, -1, 1], [-1, 1, 1]]))
    with pytest.raises(ValueError, match=r"\(\*batch, 3, 3\), got \(4, 4\)"):
        parametrization.fit(torch.eye(4))
    with pytest.raises(ValueError, match="doubly stochastic"):
        parametrization.fit(torch.full((3, 3), torch.nan))
    with pytest.raises(ValueError, match="floating point"):
        parametrization.fit(torch.eye(3, dtype=torch.int64))


def test_fit_asks_for_the_sums_and_signs_that_are_promised():
    rows = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert RowStochastic(num_streams=2).fit(rows).distance < 1e-5
    with pytest.raises(ValueError, match=r"that is nonnegative, unit rows, got row or column sums off by 0\.5"):
        RowStochastic(num_streams=2).fit(rows.mT)
    with pytest.raises(ValueError, match="that is unit sums, got"):
        SpectralSphere(num_streams=2).fit(rows)
    assert Orthogonal(num_streams=2).fit(2 * torch.eye(2)).distance == pytest.approx(2**0.5)
