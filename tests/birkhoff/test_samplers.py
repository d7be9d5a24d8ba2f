"""Samplers draw from the distributions they are named after."""

from __future__ import annotations

import pytest
import torch

from gomhc.birkhoff import SAMPLERS, balance
from gomhc.birkhoff.measures import marginal_error
from gomhc.birkhoff.samplers import haar_orthogonal, haar_unitary, permutation_pair, sinkhorn_off_diagonal


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_are_doubly_stochastic(name, d, generator):
    matrices = SAMPLERS[name](d, 50, generator)
    assert matrices.shape == (50, d, d)
    assert matrices.dtype == torch.float64
    assert matrices.min() >= 0
    assert marginal_error(matrices).max() <= 8 * d * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_depend_on_the_generator_alone(name):
    first, same, other = (SAMPLERS[name](4, 5, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    torch.manual_seed(7)
    without = SAMPLERS[name](4, 5)
    torch.manual_seed(7)
    assert torch.equal(without, SAMPLERS[name](4, 5))


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_are_symmetric_under_permutations_on_average(name, generator):
    mean = SAMPLERS[name](3, 20_000, generator).mean(0)
    torch.testing.assert_close(mean, torch.full((3, 3), 1 / 3).double(), rtol=0, atol=0.01)


@pytest.mark.parametrize("s", [1, 2])
def test_haar_entries_have_the_known_variance(s, generator):
    """For s = 1 squares of entries of Haar matrices: var = 2(d-1)/(d²(d+2)) orthogonal, (d-1)/(d²(d+1)) unitary."""
    d = 4
    orthogonal = haar_orthogonal(d, 40_000, generator, expressivity=s).var()
    unitary = haar_unitary(d, 40_000, generator, expressivity=s).var()
    if s == 1:
        assert orthogonal.item() == pytest.approx(2 * (d - 1) / (d**2 * (d + 2)), rel=0.03)
        assert unitary.item() == pytest.approx((d - 1) / (d**2 * (d + 1)), rel=0.03)
    assert unitary < orthogonal
    assert orthogonal < 2 * (d - 1) / (d**2 * (d + 2)) / s * 1.03


def test_dirichlet_over_permutations_has_the_known_variance(generator):
    """Sum of (d-1)! of d! weights of a flat Dirichlet: a Beta((d-1)!, d! - (d-1)!) variable."""
    a, total = 6, 24
    variance = SAMPLERS["dirichlet-permutations"](4, 20_000, generator).var()
    assert variance.item() == pytest.approx(a * (total - a) / (total**2 * (total + 1)), rel=0.03)


def test_pairs_lie_on_the_boundary(generator):
    matrices = permutation_pair(5, 100, generator)
    assert set(matrices.unique().tolist()) == {0.0, 0.5, 1.0}


def test_off_diagonal_samples_leave_every_stream(generator):
    matrices = sinkhorn_off_diagonal(4, 100, generator)
    assert matrices.diagonal(dim1=-2, dim2=-1).abs().max() == 0
    assert marginal_error(matrices).max() < 1e-12


def test_balance_makes_a_positive_matrix_doubly_stochastic(generator):
    matrix = torch.rand(2, 3, 4, 4, generator=generator) + 0.1
    assert marginal_error(balance(matrix)).max() < 1e-6
    assert balance(matrix[:0]).shape == (0, 3, 4, 4)
    with pytest.warns(UserWarning, match="sums are off by"):
        balance(torch.tensor([[1.0, 1.0], [1e-12, 1.0]], dtype=torch.float64))
