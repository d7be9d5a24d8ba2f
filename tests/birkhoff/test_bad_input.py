"""A mistake gets an error that says what was expected, what came, and the way out."""

from __future__ import annotations

import pytest
import torch
from variants import ALL, each

import gomhc
from gomhc import Average, Kronecker, LinearSinkhorn, Orthostochastic, Permutations, Sinkhorn


@each(ALL)
def test_wrong_number_of_logits(parametrization):
    p = parametrization.num_logits
    for shape in ((p + 1,), (3, p + 2), (p, 2) if p != 2 else (p, 3)):
        with pytest.raises(ValueError, match=rf"takes logits of shape \(\*batch, {p}\), got \({shape[0]}.*num_logits"):
            parametrization(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"got \(\)"):
        parametrization(torch.tensor(0.0))


@each(ALL)
def test_integer_and_complex_logits(parametrization):
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with pytest.raises(ValueError, match=rf"must be real floating point, got {dtype}.*logits\.float\(\)"):
            parametrization(torch.zeros(parametrization.num_logits, dtype=dtype))


@pytest.mark.unchecked
@pytest.mark.parametrize("cls", gomhc.PARAMETRIZATIONS.values(), ids=gomhc.PARAMETRIZATIONS)
def test_number_of_streams_below_one(cls):
    for num_streams in (0, -1, 2.0, "4"):
        with pytest.raises(ValueError, match=f"num_streams of {cls.__name__} must be a whole number of at least 1"):
            cls(num_streams=num_streams)


def test_counts_below_one():
    for cls, field in (
        (Orthostochastic, "expressivity"),
        (gomhc.Unistochastic, "expressivity"),
        (Sinkhorn, "num_iterations"),
        (LinearSinkhorn, "num_iterations"),
        (Average, "num_terms"),
    ):
        with pytest.raises(ValueError, match=f"{field} of {cls.__name__} must be a whole number of at least 1, got 0"):
            cls(num_streams=4, **{field: 0})


def test_factors_whose_product_is_not_the_number_of_streams():
    with pytest.raises(ValueError, match=r"num_streams=6 is not a product of factors \(2, 2\); use factors=\(2, 3\)"):
        Kronecker(num_streams=6, factors=(2, 2))
    with pytest.raises(ValueError, match=r"factors \(3,\); use factors=\(2, 2\)"):
        Kronecker(num_streams=4, factors=(Orthostochastic(num_streams=3),))


def test_too_many_permutations():
    assert Permutations(num_streams=8).num_logits == 40_320
    for build in (lambda: Permutations(num_streams=9), lambda: Kronecker(num_streams=11)):
        with pytest.raises(ValueError, match=r"permutations; at most 8 streams \(40,320\).*use go, transportation"):
            build()


def test_average_of_another_number_of_streams():
    with pytest.raises(ValueError, match=r"num_streams=4 but the averaged term has 3; use term=.*num_streams=4"):
        Average(num_streams=4, term=Orthostochastic(num_streams=3))


@pytest.mark.unchecked
def test_unknown_rotation():
    with pytest.raises(ValueError, match="one of cayley, exponential, householder, givens, got 'euler'"):
        Orthostochastic(num_streams=4, rotation="euler")


def test_shapes_in_signatures_are_checked_here():
    """Otherwise the other tests would prove less than they seem to."""
    from gomhc.birkhoff.measures import marginal_error

    with pytest.raises(Exception, match="marginal_error"):
        marginal_error(torch.zeros(2, 3))
