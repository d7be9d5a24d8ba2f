"""Gradients are right, finite, and do not vanish where learning starts. Every cotangent is random: the sum of a doubly
stochastic matrix is constant, so the gradient of a sum would be zero whether the code is right or not.
"""

from __future__ import annotations

import pytest
import torch
from random_logits import SCALES, cotangent_like, extreme_logits, random_logits
from torch.autograd import gradcheck, gradgradcheck
from variants import ALL, OPTIONS, OTHER_SIZES, REGISTERED, each

from gomhc import Orthostochastic, Promise, Unconstrained
from gomhc.birkhoff.rotations import ROTATIONS

LEARNED = [parametrization for parametrization in ALL if parametrization.num_logits > 0]


def leaf(parametrization, *batch, scale=1.0, dtype=torch.float64):
    return (scale * random_logits(parametrization, *batch)).to(dtype).requires_grad_()


@each(LEARNED)
def test_gradient_matches_finite_differences(parametrization):
    assert gradcheck(parametrization, (leaf(parametrization, 2),))


@each([parametrization for parametrization in LEARNED if parametrization.num_logits <= 30])
def test_second_gradient_matches_finite_differences(parametrization):
    assert gradgradcheck(parametrization, (leaf(parametrization, 1),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", SCALES)
@each(LEARNED)
def test_gradients_are_finite_at_every_scale(parametrization, scale, dtype):
    logits = leaf(parametrization, 100, scale=scale, dtype=dtype)
    matrix = parametrization(logits)
    matrix.backward(cotangent_like(matrix))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@each(LEARNED)
def test_gradients_are_finite_at_zero_and_at_the_largest_numbers_of_a_dtype(parametrization, dtype):
    logits = extreme_logits(parametrization, dtype).requires_grad_()
    matrix = parametrization(logits)
    matrix.backward(cotangent_like(matrix))
    assert matrix.isfinite().all() or parametrization.promise == Promise.NOTHING
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("expressivity", [1, 2, 3])
def test_gradient_is_the_papers_formula(expressivity, scale):
    """App. B.7: G_Q = (2/s) (G_B (x) 1) * Q, gradient at A = -2 (I + A)^{-T} G_Q (I + A)^{-T}, made skew."""
    d, s = 4, expressivity
    n = d * s
    parametrization = Orthostochastic(num_streams=d, expressivity=s)
    logits = leaf(parametrization, scale=scale)
    matrix = parametrization(logits)
    g_b = cotangent_like(matrix)
    (gradient,) = torch.autograd.grad(matrix, logits, g_b)

    row, column = torch.triu_indices(n, n, offset=1)
    a = torch.zeros(n, n, dtype=torch.float64)
    a[row, column], a[column, row] = logits.detach(), -logits.detach()
    k = torch.linalg.inv(torch.eye(n, dtype=torch.float64) + a)
    q = (torch.eye(n, dtype=torch.float64) - a) @ k
    g_q = 2 / s * torch.kron(g_b, torch.ones(s, s, dtype=torch.float64)) * q
    g_a = -2 * k.T @ g_q @ k.T
    torch.testing.assert_close(gradient, (g_a - g_a.T)[row, column], rtol=1e-9, atol=1e-12)


def jacobian_of(parametrization, logits):
    """Of the matrix, or of the part that can change while its sums stay one, if they are to be: (d², p)."""
    d, promise = parametrization.num_streams, parametrization.promise
    identity = torch.eye(d, dtype=torch.float64)
    centre = identity - 1 / d if promise.unit_rows and promise.unit_columns else identity
    return torch.func.jacrev(lambda z: centre @ parametrization(z) @ centre)(logits).flatten(0, 1)


@each([p for p in REGISTERED + OTHER_SIZES + OPTIONS if p.num_streams > 1 and p.num_logits > 0])
def test_jacobian_does_not_vanish_where_learning_starts(parametrization):
    logits = parametrization.initial_logits(torch.Generator().manual_seed(0)).double()
    here = torch.linalg.svdvals(jacobian_of(parametrization, logits))
    elsewhere = torch.linalg.svdvals(jacobian_of(parametrization, random_logits(parametrization)))
    assert (here > 1e-4).sum() >= (elsewhere > 1e-4).sum()  # it can move in as many directions as anywhere
    assert here[0] > 0.03


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("expressivity", [1, 2])
def test_zero_logits_of_go_are_the_identity_where_nothing_learns(rotation, expressivity):
    parametrization = Orthostochastic(num_streams=4, expressivity=expressivity, rotation=rotation)
    zeros = torch.zeros(parametrization.num_logits, dtype=torch.float64)
    assert torch.equal(parametrization(zeros), torch.eye(4, dtype=torch.float64))
    assert torch.equal(torch.func.jacrev(parametrization)(zeros), torch.zeros(4, 4, parametrization.num_logits))


def test_a_sum_checks_nothing():
    """The trap that the cotangents above avoid."""
    parametrization = Orthostochastic(num_streams=4)
    logits = leaf(parametrization)
    (gradient,) = torch.autograd.grad(parametrization(logits).sum(), logits)
    assert gradient.abs().max() < 1e-14
    logits = leaf(Unconstrained(num_streams=4))
    (gradient,) = torch.autograd.grad(Unconstrained(num_streams=4)(logits).sum(), logits)
    assert gradient.abs().min() == 1
