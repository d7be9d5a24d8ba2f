"""Measures give the values that can be worked out by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from random_logits import random_logits
from scipy.linalg import logm
from scipy.stats import entropy

from gomhc import Orthostochastic, Sinkhorn, Unconstrained
from gomhc.birkhoff.measures import (
    amax_gain,
    composite,
    distance_to_identity,
    geodesic_distance,
    kl_divergence,
    marginal_error,
    orthogonal_root,
    second_eigenvalue,
    spectrum,
)
from gomhc.birkhoff.samplers import haar_orthogonal, sinkhorn_uniform
from gomhc.statistics.curves import epochs_to_converge, gradient_jitter


def test_marginal_error_sees_rows_and_columns():
    rows = torch.tensor([[0.5, 0.5], [0.9, 0.3]])
    assert marginal_error(rows).item() == pytest.approx(0.4)
    assert marginal_error(rows.T).item() == pytest.approx(0.4)
    assert marginal_error(torch.stack((torch.eye(2), rows))).shape == (2,)


def test_gain_is_of_rows_forward_and_of_columns_backward():
    gain = amax_gain(torch.tensor([[1.0, -2.0], [0.0, 0.5]]))
    assert (gain.forward.item(), gain.backward.item()) == (3.0, 2.5)


def test_composite_applies_the_first_layer_first():
    first, second = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert torch.equal(composite(torch.stack((first, second))), second @ first)
    assert torch.equal(composite(torch.zeros(0, 2, 2)), torch.eye(2))


def test_composite_gain_of_deep_networks_is_one_for_go_drifts_for_sinkhorn_and_explodes_without_constraint():
    depth = 64
    gains = {}
    for cls, scale in ((Orthostochastic, 10), (Sinkhorn, 10), (Unconstrained, 1)):
        parametrization = cls(num_streams=4)
        logits = random_logits(parametrization, depth, dtype=torch.float32)
        gains[cls] = max(gain.item() for gain in amax_gain(composite(parametrization(scale * logits))))
    assert gains[Orthostochastic] == pytest.approx(1, abs=depth * 4 * torch.finfo(torch.float32).eps)
    assert gains[Sinkhorn] > 1.001
    assert gains[Unconstrained] > 1e6


def test_spectrum_is_sorted_by_modulus():
    matrix = torch.diag(torch.tensor([0.2, -1.0, 0.5], dtype=torch.float64))
    assert spectrum(matrix).real.tolist() == [-1.0, 0.5, 0.2]
    cycle = torch.eye(3, dtype=torch.float64).roll(1, 0)
    assert torch.allclose(spectrum(cycle).abs(), torch.ones(3, dtype=torch.float64))


def test_second_eigenvalue_of_a_lazy_swap():
    a = 0.8
    matrix = torch.tensor([[a, 1 - a], [1 - a, a]])
    assert second_eigenvalue(matrix).item() == pytest.approx(2 * a - 1)
    assert second_eigenvalue(torch.ones(1, 1)) == 0
    assert second_eigenvalue(torch.full((4, 4), 0.25)).item() == pytest.approx(0, abs=1e-6)


def test_distance_to_identity():
    assert distance_to_identity(torch.eye(3)) == 0
    assert distance_to_identity(torch.eye(2).flip(0)).item() == pytest.approx(2)


def test_kl_divergence_of_a_row_on_average(generator):
    target, matrix = sinkhorn_uniform(3, 2, generator)
    by_rows = entropy(target.numpy(), matrix.numpy(), axis=1).mean()
    by_columns = entropy(target.numpy(), matrix.numpy(), axis=0).mean()
    assert kl_divergence(target, matrix).item() == pytest.approx(by_rows) == pytest.approx(by_columns)


def test_kl_divergence_at_the_boundary():
    identity, barycentre = torch.eye(2), torch.full((2, 2), 0.5)
    assert kl_divergence(identity, identity) == 0
    assert kl_divergence(identity, barycentre).item() == pytest.approx(math.log(2))
    assert kl_divergence(barycentre, identity) == math.inf


def test_kl_divergence_has_gradients_where_the_target_is_zero():
    matrix = torch.full((3, 3), 1 / 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(kl_divergence(torch.eye(3, dtype=torch.float64), matrix), matrix)
    torch.testing.assert_close(gradient, -torch.eye(3, dtype=torch.float64))


def test_orthogonal_root_squares_back(generator):
    for d in (1, 2, 3, 4):
        matrix = haar_orthogonal(d, 20, generator)
        root = orthogonal_root(matrix)
        torch.testing.assert_close(root.square(), matrix, rtol=0, atol=1e-10)
        torch.testing.assert_close(root.mT @ root, torch.eye(d).double().expand(20, -1, -1), rtol=0, atol=1e-10)


def test_geodesic_distance_of_two_streams_is_the_angle_between_them():
    def rotated(angle):
        c, s = math.cos(angle) ** 2, math.sin(angle) ** 2
        return torch.tensor([[c, s], [s, c]], dtype=torch.float64)

    assert geodesic_distance(rotated(0.3), rotated(0.7)).item() == pytest.approx(0.4)
    # Signs are free: an angle and its mirror image are one matrix.
    assert geodesic_distance(rotated(-0.3), rotated(0.3)).item() == pytest.approx(0, abs=1e-6)
    assert geodesic_distance(rotated(0), rotated(math.pi / 2)).item() == pytest.approx(math.pi / 2)


def test_geodesic_distance_is_the_norm_of_the_logarithm(generator):
    """scipy's matrix logarithm, over all signs of rows and columns that keep the determinant."""
    a, b = (torch.randn(3, 3, generator=generator, dtype=torch.float64) * 0.5 for _ in range(2))
    a, b = torch.linalg.matrix_exp(a - a.T), torch.linalg.matrix_exp(b - b.T)
    signs = [np.diag(signs) for signs in product((1, -1), repeat=3)]
    rotations = [a.numpy().T @ left @ b.numpy() @ right for left in signs for right in signs]
    lengths = [np.linalg.norm(logm(q)) / math.sqrt(2) for q in rotations if np.linalg.det(q) > 0]
    assert geodesic_distance(a.square(), b.square()).item() == pytest.approx(min(lengths), rel=1e-6)


def test_geodesic_distance_is_a_distance_in_batches(generator):
    a, b = haar_orthogonal(4, 5, generator), haar_orthogonal(4, 5, generator)
    torch.testing.assert_close(geodesic_distance(a, b), geodesic_distance(b, a))
    assert geodesic_distance(a, a).max() < 1e-6
    with pytest.raises(ValueError, match="at most 4 streams, got 5"):
        geodesic_distance(torch.eye(5), torch.eye(5))


def test_epochs_to_within_five_per_cent():
    assert epochs_to_converge([10, 5, 1.06, 1.04, 1.0, 1.0]) == 3
    assert epochs_to_converge([10, 5, 1.06, 1.04, 1.0, 1.0], tolerance=0.1) == 2
    assert epochs_to_converge([3.0]) == 0
    with pytest.raises(ValueError, match="must be finite, got nan"):
        epochs_to_converge([1.0, math.nan])
    with pytest.raises(ValueError, match="must be finite, got inf"):
        epochs_to_converge([1.0, 2.0, math.inf])
    with pytest.raises(ValueError, match="at least one epoch"):
        epochs_to_converge([])


def test_gradient_jitter_is_the_coefficient_of_variation_of_a_window():
    norms = np.arange(1.0, 13.0)
    jitter = gradient_jitter(norms, window=10)
    assert len(jitter) == 3
    assert jitter[0] == pytest.approx(norms[:10].std() / norms[:10].mean())
    assert gradient_jitter(np.full(10, 2.0)).tolist() == [0.0]
    assert gradient_jitter(7 * norms)[1] == pytest.approx(gradient_jitter(norms)[1])
    with pytest.raises(ValueError, match="at least window=10"):
        gradient_jitter([1.0] * 9)
