"""The Triton kernels run behind the operators that CUDA tensors take: here on the CPU, by Triton's interpreter."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import gomhc
from gomhc import kernels
from gomhc.birkhoff import PARAMETRIZATIONS, as_mixing
from gomhc.kernels import dispatch, ops, triton_ops
from gomhc.models import GPT, GPTConfig

if not dispatch.INTERPRETED:
    pytest.skip("Triton's interpreter is not available", allow_module_level=True)

EPS = torch.finfo(torch.float32).eps


@pytest.fixture
def launches(monkeypatch):
    """Names of the operators that Triton computed."""
    names = []
    for name, function in ops.FOR_CUDA.items():
        monkeypatch.setitem(ops.FOR_CUDA, name, lambda *a, n=name, f=function: (names.append(n), f(*a))[1])
    return names


def result_and_gradient(version, function, inputs, cotangent):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    with kernels.use(version):
        result = function(*leaves)
        return result, *torch.autograd.grad(result, leaves, cotangent, allow_unused=True)


def test_triton_is_available_with_its_interpreter():
    assert "triton" in kernels.available()
    assert "interpreted" in kernels.reasons()["triton"]


@pytest.mark.parametrize("key", sorted(PARAMETRIZATIONS))
def test_every_mixing_is_the_same_in_triton_as_in_plain_torch(key, launches, generator):
    mixing = PARAMETRIZATIONS[key](num_streams=4)
    logits = torch.randn(2, 3, mixing.num_logits, generator=generator)
    cotangent = torch.randn(2, 3, 4, 4, generator=generator)
    if mixing.num_logits == 0:
        return
    actual = result_and_gradient("triton", mixing, [logits], cotangent)
    expected = result_and_gradient("plain", mixing, [logits.double()], cotangent.double())
    for ours, oracle in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.double(), oracle, rtol=0, atol=64 * EPS * max(1, oracle.abs().max().item()))
    assert bool(launches) == (mixing.kernel is not None and triton_ops.has_map(mixing.kernel))


@pytest.mark.parametrize("name", ["rows", "orthogonal", "spectral-sphere", "projection", "go:rotation=givens"])
def test_a_product_with_a_factor_that_triton_lacks_is_left_to_torch(name, generator):
    factors = (gomhc.Orthostochastic(num_streams=2), as_mixing(name, num_streams=3))
    mixing = gomhc.Kronecker(num_streams=6, factors=factors)
    assert mixing.kernel is not None
    logits, cotangent = (
        torch.randn(4, mixing.num_logits, generator=generator),
        torch.randn(4, 6, 6, generator=generator),
    )
    with warnings.catch_warnings(action="error"):
        actual = result_and_gradient("triton", mixing, [logits], cotangent)
    expected = result_and_gradient("plain", mixing, [logits.double()], cotangent.double())
    for ours, oracle in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.double(), oracle, rtol=0, atol=64 * EPS * max(1, oracle.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mixing", ["go", "sinkhorn-v4"])
def test_a_layer_is_the_same_in_triton_as_in_plain_torch(mixing, dtype, launches, generator):
    layer = gomhc.HyperConnection(torch.tanh, dim=24, mixing=mixing, start="near-identity", generator=generator)
    streams, cotangent = (torch.randn(5, 4, 24, generator=generator).to(dtype) for _ in range(2))
    parameters = [parameter.detach() for parameter in layer.parameters()]
    names = [name for name, _ in layer.named_parameters()]

    def call(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    actual = result_and_gradient("triton", call, (streams, *parameters), cotangent)
    doubles = [tensor.double() for tensor in (streams, *parameters)]
    expected = result_and_gradient("plain", call, doubles, cotangent.double())
    eps = torch.finfo(dtype).eps
    for ours, oracle in zip(actual, expected, strict=True):
        scale = max(1.0, oracle.abs().max().item())
        torch.testing.assert_close(ours.double(), oracle, rtol=4 * eps, atol=16 * eps * scale)
    assert {"read", "read_backward", "mixing", "mixing_backward", "write", "write_backward"} <= set(launches)


def test_coefficients_that_tokens_share_are_the_same_in_triton_as_in_plain_torch(launches, generator):
    layer = gomhc.HyperConnection(torch.tanh, dim=24, dynamic=False, start="near-identity", generator=generator)
    streams, cotangent = torch.randn(2, 5, 4, 24, generator=generator)
    actual = result_and_gradient("triton", layer, [streams], cotangent)
    for ours, oracle in zip(actual, result_and_gradient("plain", layer, [streams], cotangent), strict=True):
        torch.testing.assert_close(ours, oracle, rtol=0, atol=16 * EPS * max(1.0, oracle.abs().max().item()))
    assert {"read_shared", "read_shared_backward", "mixing", "write", "write_backward"} <= set(launches)


def test_a_layer_without_gradients_takes_triton_too(launches, generator):
    layer = gomhc.HyperConnection(torch.tanh, dim=24, start="near-identity", generator=generator)
    streams = torch.randn(5, 4, 24, generator=generator)
    with torch.no_grad(), kernels.use("plain"):
        expected = layer(streams)
    with torch.no_grad(), kernels.use("triton"):
        torch.testing.assert_close(layer(streams), expected, rtol=0, atol=16 * EPS * expected.abs().max().item())
    assert launches == ["read", "mixing", "write"]


def test_a_training_step_of_a_gpt_equals_the_native_one(launches):
    config = GPTConfig(num_layers=2, num_heads=2, num_channels=16, context_length=8, vocab_size=50, mixing="go")
    torch.manual_seed(0)
    model, tokens = GPT(config), torch.randint(50, (2, 9))

    def step(version):
        trained = copy.deepcopy(model)
        optimizer = torch.optim.SGD(trained.parameters(), lr=1.0)
        with kernels.use(version):
            loss = trained(tokens[:, :-1], tokens[:, 1:])[1]
            loss.backward()
        optimizer.step()
        return loss.detach(), torch.nn.utils.parameters_to_vector(trained.parameters()).detach()

    loss, parameters = step("triton")
    expected_loss, expected = step(kernels.available()[0])
    assert {"read_backward", "mixing_backward", "write_backward"} <= set(launches)
    torch.testing.assert_close(loss, expected_loss, rtol=16 * EPS, atol=0)
    assert (parameters - expected).abs().max() <= 64 * EPS * max(1.0, expected.abs().max().item())


def broken(*arguments, **sizes):
    raise RuntimeError("no such GPU\nand more about it")


@pytest.mark.parametrize("name", ["mixing", "mixing_backward", "read", "read_backward", "write", "write_backward"])
def test_torch_takes_over_after_one_warning_where_a_kernel_fails(name, monkeypatch, generator):
    from gomhc.kernels.triton import triton_map, triton_product, triton_streams

    monkeypatch.setattr(triton_ops, "_failed", set())
    kernel = {
        "mixing": (triton_map, "_orthostochastic_forward"),
        "mixing_backward": (triton_map, "_orthostochastic_backward"),
        "read": (triton_product, "_row_product"),
        "read_backward": (triton_streams, "_read_backward"),
        "write": (triton_streams, "_write_forward"),
        "write_backward": (triton_streams, "_write_backward"),
    }[name]
    monkeypatch.setattr(*kernel, type("Broken", (), {"__getitem__": lambda *_: broken})())
    layer = gomhc.HyperConnection(torch.tanh, dim=8, start="near-identity", generator=generator)
    streams, cotangent = torch.randn(2, 3, 4, 8, generator=generator)
    expected = result_and_gradient("plain", layer, [streams], cotangent)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            actual = result_and_gradient("triton", layer, [streams], cotangent)
    messages = [str(warning.message) for warning in caught if "Triton" in str(warning.message)]
    reason = "RuntimeError: no such GPU"
    assert f"the Triton kernel of gomhc::{name} failed ({reason}); torch takes over" in messages
    assert len(messages) == len(set(messages))
    for ours, oracle in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, oracle, rtol=0, atol=64 * EPS * max(1.0, oracle.abs().max().item()))
