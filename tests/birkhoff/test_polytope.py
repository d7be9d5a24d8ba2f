"""Every parametrization keeps its promise, at any scale, in any dtype and batch shape."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from random_logits import SCALES, extreme_logits, random_logits, tolerance
from variants import ALL, EXACT, each

import gomhc
from gomhc import Promise
from gomhc.birkhoff.measures import marginal_error

PROMISING = [parametrization for parametrization in ALL if parametrization.promise != Promise.NOTHING]
EIGHT = [cls(num_streams=8) for cls in gomhc.PARAMETRIZATIONS.values() if cls(num_streams=8).promise != Promise.NOTHING]


def assert_as_promised(parametrization, matrix):
    """Each fact by itself, with sums in float64 and singular values from numpy."""
    promise, eps = parametrization.promise, tolerance(parametrization, matrix.dtype)
    wide = matrix.double()
    if promise.nonnegative:
        assert matrix.min() >= 0
    if promise.to_rounding:
        if promise.unit_rows:
            assert (wide.sum(-1) - 1).abs().max() <= eps
        if promise.unit_columns:
            assert (wide.sum(-2) - 1).abs().max() <= eps
    values = numpy.linalg.svd(wide.numpy(), compute_uv=False)
    assert values.max() <= promise.norm * (1 + eps)
    if promise.isometric:
        assert values.min() >= 1 - eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", SCALES)
@each(PROMISING)
def test_every_promise_is_kept_at_every_scale(parametrization, scale, dtype):
    matrix = parametrization((scale * random_logits(parametrization, 200)).to(dtype))
    assert matrix.dtype == dtype
    assert_as_promised(parametrization, matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", SCALES)
@each(EIGHT)
def test_every_promise_is_kept_for_eight_streams(parametrization, scale, dtype):
    assert_as_promised(parametrization, parametrization((scale * random_logits(parametrization, 8)).to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@each(PROMISING)
def test_every_promise_is_kept_at_the_largest_numbers_of_a_dtype(parametrization, dtype):
    assert_as_promised(parametrization, parametrization(extreme_logits(parametrization, dtype)))


@each([parametrization for parametrization in ALL if parametrization.num_streams > 2])
def test_no_more_holds_than_is_promised(parametrization):
    """Or the promise would be too weak: random logits break what it leaves out."""
    promise, matrix = parametrization.promise, parametrization(3 * random_logits(parametrization, 500))
    if parametrization.num_logits > 0:
        assert promise.nonnegative or matrix.min() < 0
        assert promise.unit_rows or (matrix.sum(-1) - 1).abs().max() > 0.01
        assert promise.unit_columns or (matrix.sum(-2) - 1).abs().max() > 0.01
        assert promise.isometric or torch.linalg.svdvals(matrix).min() < 0.99
    assert promise.norm == math.inf or promise.norm <= max(1, 1.6 * torch.linalg.matrix_norm(matrix, 2).max())


def test_promises_in_words():
    words = {key: str(cls(num_streams=4).promise) for key, cls in gomhc.PARAMETRIZATIONS.items()}
    assert words["go"] == "exact"
    assert words["sinkhorn"] == "approximate"
    assert words["unconstrained"] == "nothing"
    assert words["orthogonal"] == "singular values one"
    assert words["spectral-sphere"] == "unit sums, norm at most 1"
    assert words["rows"] == "nonnegative, unit rows, norm at most 2"
    assert words["off-diagonal"] == "norm at most 1.5"


def test_a_kronecker_product_promises_what_its_factors_have_in_common():
    def promise(*factors):
        return gomhc.Kronecker(num_streams=4, factors=tuple(factor(num_streams=2) for factor in factors)).promise

    assert promise(gomhc.Circulant, gomhc.Transportation) == Promise.EXACT
    assert promise(gomhc.Sinkhorn, gomhc.Circulant).to_rounding is False
    assert promise(gomhc.Orthogonal, gomhc.Orthogonal) == Promise(norm=1, isometric=True)
    assert promise(gomhc.Orthogonal, gomhc.Circulant) == Promise(norm=1)
    assert promise(gomhc.Unconstrained, gomhc.Circulant).norm == math.inf


def test_an_average_of_rotations_is_a_contraction():
    average = gomhc.Average(num_streams=3, term="orthogonal")
    assert average.promise == Promise(norm=1)
    assert_as_promised(average, average(random_logits(average, 50)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 3.7])
@pytest.mark.parametrize("num_streams", range(2, 9))
def test_equal_weights_of_all_permutations_sum_to_one(num_streams, value, dtype):
    """Equal numbers round alike, so errors add up instead of cancelling."""
    parametrization = gomhc.Permutations(num_streams=num_streams)
    matrix = parametrization(torch.full((2, parametrization.num_logits), value, dtype=dtype))
    assert marginal_error(matrix.double()).max() <= 2 * num_streams * torch.finfo(dtype).eps
    torch.testing.assert_close(matrix, torch.full_like(matrix, 1 / num_streams))


def test_sinkhorn_is_only_approximate_at_large_logits():
    from gomhc import Sinkhorn

    parametrization = Sinkhorn(num_streams=4)
    errors = [marginal_error(parametrization(scale * random_logits(parametrization, 1000))).max() for scale in (1, 10)]
    assert errors[0] > 1e-5
    assert errors[1] > 1e-2


def test_more_sinkhorn_iterations_come_closer():
    from gomhc import LinearSinkhorn, Sinkhorn

    for cls in (Sinkhorn, LinearSinkhorn):
        few, many = cls(num_streams=4, num_iterations=5), cls(num_streams=4, num_iterations=50)
        logits = 2 * random_logits(few, 100)
        assert marginal_error(many(logits)).mean() < marginal_error(few(logits)).mean() / 10


def test_without_constraint_nothing_is_promised():
    from gomhc import Unconstrained

    parametrization = Unconstrained(num_streams=3)
    assert parametrization.promise == Promise.NOTHING
    assert torch.equal(parametrization(torch.arange(9.0)), torch.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each(EXACT)
def test_half_precision_is_computed_in_float32(parametrization, dtype):
    logits = random_logits(parametrization, 20, dtype=dtype)
    matrix = parametrization(logits)
    assert matrix.dtype == dtype
    assert torch.equal(matrix, parametrization(logits.float()).to(dtype))


@each(ALL)
def test_autocast_does_not_touch_it(parametrization):
    logits = random_logits(parametrization, 20, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = parametrization(logits)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, parametrization(logits))


@each(ALL)
def test_any_batch_shape_gives_the_same_matrices(parametrization):
    d, logits = parametrization.num_streams, random_logits(parametrization, 2, 3, 5)
    matrix = parametrization(logits)
    assert matrix.shape == (2, 3, 5, d, d)
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(matrix[1, 2, 4], parametrization(logits[1, 2, 4]), **close)
    torch.testing.assert_close(matrix.flatten(0, 2), parametrization(logits.flatten(0, 2)), **close)
    assert parametrization(logits[:, :0]).shape == (2, 0, 5, d, d)
    assert parametrization(logits[0, 0, 0]).shape == (d, d)


@each(ALL)
def test_input_need_not_be_contiguous(parametrization):
    logits = random_logits(parametrization, 15)
    transposed = logits.t().contiguous().t()
    strided = torch.stack((logits, logits), dim=-1)[..., 0]
    torch.testing.assert_close(parametrization(transposed), parametrization(logits), rtol=0, atol=1e-12)
    torch.testing.assert_close(parametrization(strided), parametrization(logits), rtol=0, atol=1e-12)


@each([parametrization for parametrization in ALL if parametrization.num_logits > 0])
def test_nan_stays_in_its_batch_element(parametrization):
    others = [0, 1, 2, 4, 5, 6]
    unused_diagonal = getattr(parametrization, "layout", "") == "square"
    for place in (1, -2) if unused_diagonal else (0, -1):
        logits = random_logits(parametrization, 7)
        clean = parametrization(logits)
        logits[3, place] = torch.nan
        logits.requires_grad_()
        matrix = parametrization(logits)
        assert matrix[3].isnan().any()
        torch.testing.assert_close(matrix[others], clean[others], rtol=0, atol=1e-12)
        (gradient,) = torch.autograd.grad(matrix, logits, torch.randn_like(matrix))
        assert gradient[others].isfinite().all()
