"""Maps, layers and fits work on a device without float64, with the accuracy that float32 has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from narrow_device import DEVICE, NarrowDevice, NarrowTensor, moved
from torch.testing import assert_close
from variants import OPTIONS, REGISTERED, each

import gomhc
from gomhc import kernels
from gomhc.birkhoff import parametrization as base
from gomhc.birkhoff.measures import marginal_error
from gomhc.inspection import inspect
from gomhc.integrations.deepseek_v4 import transfer
from gomhc.kernels import precision
from gomhc.layers import Coefficients
from gomhc.models import GPT, GPTConfig

EPSILON = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {DEVICE.type})
    with NarrowDevice():
        yield


def test_the_device_has_no_float64() -> None:
    tensor = torch.ones(2, device=DEVICE)
    assert isinstance(tensor, NarrowTensor)
    with pytest.raises(TypeError, match="doesn't support float64"):
        tensor.double()
    with pytest.raises(TypeError, match="doesn't support float64"):
        torch.ones(2, dtype=torch.float64, device=DEVICE)


@each(REGISTERED + OPTIONS)
def test_every_map_and_its_gradient_are_those_of_the_cpu(parametrization, generator) -> None:
    logits = torch.randn(20, parametrization.num_logits, generator=generator)
    cotangent = torch.randn(20, *2 * (parametrization.num_streams,), generator=generator)
    results = []
    for place in ("cpu", DEVICE):
        leaf = logits.to(place).requires_grad_()
        matrix = parametrization(leaf)
        gradient = torch.zeros_like(leaf)
        if matrix.requires_grad:
            (gradient,) = torch.autograd.grad(
                matrix, leaf, cotangent.to(place), allow_unused=True, materialize_grads=True
            )
        assert matrix.device == gradient.device == torch.device(place)
        results.append((matrix.detach().cpu(), gradient.cpu()))
    assert_close(results[1], results[0], rtol=1e-4, atol=64 * EPSILON)


@pytest.mark.parametrize("scale", [0.1, 1, 10, 100, 1e3, 1e4, 1e6])
@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_sums_of_go_are_one_to_rounding_and_entries_to_rounding_times_the_logits(d, scale, generator) -> None:
    go = gomhc.Orthostochastic(num_streams=d, expressivity=1 + d % 2)
    spread = 10 ** (6 * torch.rand(500, go.num_logits, generator=generator) - 6)
    logits = (
        scale * torch.cat((spread, torch.ones_like(spread))) * torch.randn(1000, go.num_logits, generator=generator)
    )
    matrix = go(logits.to(DEVICE)).cpu().double()
    assert marginal_error(matrix).max() < 4 * go.size * EPSILON
    assert_close(matrix, go(logits.double()), rtol=0, atol=8 * EPSILON * (1 + min(scale, 2**16)))


def test_forced_versions_of_the_kernels_run_too(generator) -> None:
    logits = torch.randn(3, 28, generator=generator).to(DEVICE)
    for version in kernels.available():
        with kernels.use(version):
            assert kernels.orthostochastic(logits, 4, 2).device == DEVICE


@each([cls(num_streams=2) for cls in (gomhc.Orthostochastic, gomhc.Unistochastic, gomhc.Sinkhorn)])
def test_fits_are_computed_on_the_cpu_and_come_back(parametrization, generator) -> None:
    matrix = parametrization(torch.randn(2, parametrization.num_logits, generator=generator))
    expected, fit = parametrization.fit(matrix), parametrization.fit(matrix.to(DEVICE))
    assert fit.logits.device == fit.distance.device == DEVICE
    assert torch.equal(fit.logits.cpu(), expected.logits)
    assert torch.equal(fit.distance.cpu(), expected.distance)


def test_a_generator_without_float64_seeds_one_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    assert base._with_float64(generator) is generator
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {"cpu"})
    one, other = (base._with_float64(torch.Generator().manual_seed(3)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.initial_seed() == other.initial_seed() != 3


def test_a_layer_trains(generator) -> None:
    layer = gomhc.HyperConnection(torch.nn.Identity(), 8, num_streams=4)
    streams, cotangent = torch.randn(2, 3, 4, 8, generator=generator)
    expected = layer(streams)
    expected.backward(cotangent)
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
    output = moved(layer)(streams.to(DEVICE))
    assert_close(output.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)
    output.backward(cotangent.to(DEVICE))
    for name, parameter in layer.named_parameters():
        assert_close(parameter.grad.cpu(), gradients[name], rtol=1e-3, atol=1e-4)


def test_a_model_is_inspected(generator) -> None:
    config = GPTConfig(
        num_layers=1, num_heads=1, num_channels=8, context_length=8, vocab_size=5,
        mixing=gomhc.Orthostochastic(num_streams=2),
    )  # fmt: skip
    model, tokens = GPT(config, generator), torch.tensor([[0, 1, 2, 3]])
    expected = inspect(model, tokens).summary()
    assert inspect(moved(model), tokens.to(DEVICE)).summary() == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # the simulated device is no meta device
def test_coefficients_change_their_mixing() -> None:
    source = Coefficients(8, gomhc.Sinkhorn(num_streams=4), start="near-identity")
    expected, distance = transfer(source, gomhc.Orthostochastic(num_streams=4))
    changed, its_distance = transfer(moved(source), gomhc.Orthostochastic(num_streams=4))
    assert changed.bias.device == DEVICE
    assert torch.equal(changed.bias.detach().cpu(), expected.bias)
    assert its_distance == distance
