"""A weight of any module becomes doubly stochastic, by torch's own convention."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from variants import REGISTERED, each

import gomhc
from gomhc import Orthostochastic, Promise, Transportation, Unconstrained
from gomhc.birkhoff.measures import marginal_error
from gomhc.birkhoff.samplers import sinkhorn_uniform


def linear(parametrization, generator=None):
    layer = nn.Linear(parametrization.num_streams, parametrization.num_streams, bias=False)
    return gomhc.doubly_stochastic(layer, "weight", parametrization, generator)


@each(REGISTERED)
def test_weight_is_doubly_stochastic_and_learns(parametrization, generator):
    layer = linear(parametrization, generator)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    target, x = sinkhorn_uniform(4, 1, generator)[0].float(), torch.randn(64, 4, generator=generator)
    losses = []
    for _ in range(60):
        loss = (layer(x) - x @ target.T).square().mean()
        if loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    if parametrization.promise == Promise.EXACT:
        assert marginal_error(layer.weight) < 1e-5
    if parametrization.num_logits > 0:
        comes_near = parametrization.promise.unit_rows or parametrization.promise == Promise.NOTHING
        assert losses[-1] < (0.5 if comes_near else 0.95) * losses[0]


@each([parametrization for parametrization in REGISTERED if parametrization.promise != Promise.NOTHING])
def test_it_starts_near_the_identity(parametrization, generator):
    leak = 1 - linear(parametrization, generator).weight.diagonal().mean().item()
    assert leak == pytest.approx(0 if parametrization.starts_at_identity else 0.1, abs=2e-3)


def test_without_constraint_the_weight_is_kept():
    layer = nn.Linear(4, 4)
    weight = layer.weight.detach().clone()
    assert torch.equal(gomhc.doubly_stochastic(layer, "weight", Unconstrained(num_streams=4)).weight, weight)


def test_a_doubly_stochastic_weight_is_kept(generator):
    layer = nn.Linear(4, 4, bias=False)
    weight = sinkhorn_uniform(4, 1, generator)[0].float()
    layer.weight.data.copy_(weight)
    for parametrization in (Orthostochastic(num_streams=4), Transportation(num_streams=4)):
        same = gomhc.doubly_stochastic(copy.deepcopy(layer), "weight", parametrization)
        torch.testing.assert_close(same.weight, weight, rtol=0, atol=1e-5)


def test_weight_can_be_assigned_saved_and_loaded(generator, tmp_path):
    layer, other = linear(Orthostochastic(num_streams=4)), linear(Orthostochastic(num_streams=4))
    weight = sinkhorn_uniform(4, 1, generator)[0].float()
    layer.weight = weight
    torch.testing.assert_close(layer.weight, weight, rtol=0, atol=1e-5)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(other.weight, layer.weight)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    assert set(layer.state_dict()) == {"parametrizations.weight.original"}


def test_the_optimizer_sees_the_logits_alone():
    parameters = list(linear(Orthostochastic(num_streams=4, expressivity=2)).parameters())
    assert [tuple(parameter.shape) for parameter in parameters] == [(28,)]


def test_a_batch_of_weights_is_a_batch_of_matrices(generator):
    module = nn.Module()
    module.mix = nn.Parameter(torch.randn(2, 3, 4, 4))
    gomhc.doubly_stochastic(module, "mix", Transportation(num_streams=4), generator)
    assert module.mix.shape == (2, 3, 4, 4)
    assert marginal_error(module.mix).max() < 1e-6
    assert len(module.mix.flatten(0, 1).unique(dim=0)) == 6
    assert [tuple(parameter.shape) for parameter in module.parameters()] == [(2, 3, 9)]


def test_parametrization_can_be_removed_and_cached():
    layer = linear(Orthostochastic(num_streams=4))
    with parametrize.cached():
        assert layer.weight is layer.weight
    weight = layer.weight.detach()
    parametrize.remove_parametrizations(layer, "weight")
    assert torch.equal(layer.weight, weight)


def test_half_precision_modules_keep_their_dtype():
    layer = nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    gomhc.doubly_stochastic(layer, "weight", Orthostochastic(num_streams=4))
    assert layer.weight.dtype == torch.bfloat16
    assert marginal_error(layer.weight.float()) < 4 * torch.finfo(torch.bfloat16).eps


def test_assigning_what_cannot_be_expressed_warns(generator):
    layer = linear(Orthostochastic(num_streams=4, expressivity=1))
    with pytest.warns(UserWarning, match=r"closest matrix .* away from the assigned one; use a larger expressivity"):
        layer.weight = sinkhorn_uniform(4, 1, generator)[0].float()


def test_assigning_copies():
    layer = nn.Linear(4, 4, dtype=torch.float64)
    gomhc.doubly_stochastic(layer, "weight", gomhc.LinearSinkhorn(num_streams=4))
    weight = torch.full((4, 4), 0.25, dtype=torch.float64)
    layer.weight = weight
    with torch.no_grad():
        layer.parametrizations.weight.original.add_(1)
    assert torch.equal(weight, torch.full((4, 4), 0.25, dtype=torch.float64))


@each(REGISTERED)
def test_models_on_the_meta_device_have_the_right_shapes(parametrization):
    layer = gomhc.doubly_stochastic(nn.Linear(4, 4, device="meta"), "weight", parametrization)
    assert layer.weight.shape == (4, 4)
    assert layer.weight.is_meta


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="'weight' is already parametrized"):
        gomhc.doubly_stochastic(linear(Orthostochastic(num_streams=4)), "weight", Transportation(num_streams=4))
    with pytest.raises(ValueError, match="Linear has no tensor 'wieght'"):
        gomhc.doubly_stochastic(nn.Linear(4, 4), "wieght", Orthostochastic(num_streams=4))
    with pytest.raises(ValueError, match=r"shape \(\*batch, 4, 4\), but 'weight' has shape \(4, 5\)"):
        gomhc.doubly_stochastic(nn.Linear(5, 4), "weight", Orthostochastic(num_streams=4))
    with pytest.raises(ValueError, match="doubly stochastic"):
        linear(Orthostochastic(num_streams=4)).weight = torch.ones(4, 4)
