"""Initial logits mean a matrix near the identity, as near as the field says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from variants import ALL, each

from gomhc import Identity, Kronecker, Orthostochastic, Promise, Unistochastic
from gomhc.birkhoff.measures import distance_to_identity
from gomhc.birkhoff.rotations import ROTATIONS


def starts_at_identity(parametrization):
    """Itself, or all its parts."""
    parts = getattr(parametrization, "parts", ()) or filter(None, [getattr(parametrization, "term", None)])
    return parametrization.starts_at_identity or any(map(starts_at_identity, parts))


MIXING = [parametrization for parametrization in ALL if parametrization.num_streams > 1]


@pytest.mark.parametrize("leak", [1e-3, 0.1, 0.5])
@each([parametrization for parametrization in MIXING if not starts_at_identity(parametrization)])
def test_the_field_says_how_near_the_identity_it_starts(parametrization, leak, generator):
    parametrization = replace(parametrization, initial_leak=leak)
    matrix = parametrization(parametrization.initial_logits(generator))
    tolerance = 1e-3 if parametrization.promise == Promise.EXACT else 1e-2
    assert 1 - matrix.diagonal().mean().item() == pytest.approx(leak, rel=tolerance)


@pytest.mark.parametrize("leak", [0.1, 0.5])
@each(
    [
        *(Orthostochastic(num_streams=d, expressivity=s) for d in (2, 3) for s in (1, 2)),
        *(Orthostochastic(num_streams=2, rotation=rotation) for rotation in ROTATIONS),
        *(Unistochastic(num_streams=d, expressivity=s) for d in (2, 3) for s in (1, 2)),
        Kronecker(num_streams=4, factors=(Orthostochastic(num_streams=2), Orthostochastic(num_streams=2))),
        Kronecker(num_streams=4, factors=(Identity(num_streams=2), 2)),
    ]
)
def test_every_seed_starts_where_the_field_says(parametrization, leak):
    """Also where a direction turns mostly inside blocks and never leaks enough."""
    parametrization = replace(parametrization, initial_leak=leak)
    for seed in range(60):
        matrix = parametrization(parametrization.initial_logits(torch.Generator().manual_seed(seed)))
        assert 1 - matrix.diagonal().mean().item() == pytest.approx(leak, rel=1e-3)


def test_a_tiny_leak_is_kept_by_every_factor(generator):
    parametrization = Kronecker(num_streams=8, initial_leak=1e-8)
    diagonal = parametrization(parametrization.initial_logits(generator).double()).diagonal().mean()
    assert 1 - diagonal.item() == pytest.approx(1e-8, rel=0.1)


@each(ALL)
def test_start_depends_on_the_generator_alone(parametrization):
    seeds = [torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    first, same, other = (parametrization.initial_logits(seed) for seed in seeds)
    assert first.shape == (parametrization.num_logits,)
    assert first.dtype == torch.get_default_dtype()
    assert torch.equal(first, same)
    if parametrization.num_streams > 2 and not starts_at_identity(parametrization):
        assert not torch.equal(first, other)


@each([parametrization for parametrization in ALL if parametrization.starts_at_identity])
def test_those_whose_jacobian_does_not_vanish_there_start_as_the_identity(parametrization, generator):
    assert distance_to_identity(parametrization(parametrization.initial_logits(generator))) == 0


@pytest.mark.parametrize("leak", [0.0, -0.1, 0.9])
def test_an_impossible_leak_is_refused(leak):
    with pytest.raises(ValueError, match=r"initial_leak must be a finite number, at least 1e-10 and at most 0\.5; got"):
        Orthostochastic(num_streams=4, initial_leak=leak)
