"""A connection in DeepSeek-V4's form computes what Hugging Face's implementation of that model computes."""

from __future__ import annotations

import pytest
import torch

import gomhc
from gomhc import HyperConnection, Orthostochastic, kernels
from gomhc.integrations.deepseek_v4 import from_deepseek_v4, to_deepseek_v4

HUB = "transformers.models.deepseek_v4"
configuration = pytest.importorskip(f"{HUB}.configuration_deepseek_v4", reason="needs gomhc[hf]")
modeling = pytest.importorskip(f"{HUB}.modeling_deepseek_v4", reason="needs gomhc[hf]")


def theirs(num_streams=4, dim=16, iterations=20, epsilon=1e-6):
    config = configuration.DeepseekV4Config(
        hc_mult=num_streams, hidden_size=dim, hc_sinkhorn_iters=iterations, hc_eps=epsilon, rms_norm_eps=1e-5
    )
    module = modeling.DeepseekV4HyperConnection(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    return module


def ours(module, branch=None):
    return from_deepseek_v4(
        branch,
        module.fn,
        module.base,
        module.scale,
        epsilon=module.hc_eps,
        num_iterations=module.hc_sinkhorn_iters,
        norm_epsilon=module.input_norm.eps,
    )


@pytest.mark.parametrize(("num_streams", "iterations", "epsilon"), [(4, 20, 1e-6), (2, 3, 1e-6), (6, 20, 1e-3)])
def test_it_gives_what_hugging_face_gives(num_streams, iterations, epsilon, generator):
    module = theirs(num_streams, iterations=iterations, epsilon=epsilon)
    connection = ours(module)
    streams = torch.randn(2, 5, num_streams, 16, generator=generator)
    output = torch.randn(2, 5, 16, generator=generator)
    post, comb, collapsed = module(streams)
    branch_input, state = connection.read(streams)
    torch.testing.assert_close(branch_input, collapsed)
    torch.testing.assert_close(state.write, post)
    torch.testing.assert_close(state.mix, comb.mT)
    # As their decoder layer joins them.
    joined = post.unsqueeze(-1) * output.unsqueeze(-2) + torch.matmul(comb.transpose(-1, -2), streams)
    torch.testing.assert_close(connection.write(state, output), joined)
    # Their matrix is not symmetric: the other direction would be seen.
    assert (state.mix - comb).abs().max() > 0.01


@pytest.mark.skipif("native" not in kernels.available(), reason="the library is not built: no C++ compiler")
@pytest.mark.parametrize(("num_streams", "dim"), [(2, 96), (4, 384), (5, 33), (8, 64)])
def test_the_compiled_layer_is_theirs_within_a_millionth(num_streams, dim, generator):
    """Outputs, and the gradients of all inputs, at weights of the size that a model starts with."""
    module = theirs(num_streams, dim)
    with torch.no_grad():
        module.fn.mul_(0.02)
    connection = ours(module, branch=torch.tanh)
    streams, cotangent = torch.randn(2, 3, 43, num_streams, dim, generator=generator)
    streams.requires_grad_()
    assert connection.coefficients.mixing.kernel is not None
    with kernels.use("native"):
        output = connection(streams)
        parts = connection.coefficients
        gradients = torch.autograd.grad(output, (streams, parts.weight, parts.bias, parts.scale), cotangent)
    post, comb, collapsed = module(streams)
    joined = post.unsqueeze(-1) * torch.tanh(collapsed).unsqueeze(-2) + comb.transpose(-1, -2) @ streams
    expected = torch.autograd.grad(joined, (streams, module.fn, module.base, module.scale), cotangent)
    assert (output - joined).abs().max() <= 1e-6 * joined.abs().max()
    eps = torch.finfo(torch.float32).eps
    for mine, reference in zip(gradients, expected, strict=True):
        # Sums over channels and tokens, each rounded: errors add up as the root of their number.
        size = (streams.numel() // num_streams) ** 0.5 * eps * reference.abs().max().item()
        torch.testing.assert_close(mine, reference, rtol=0, atol=size)


def test_gradients_are_those_of_hugging_face(generator):
    module = theirs()
    connection = ours(module, branch=torch.tanh)
    streams, cotangent = torch.randn(2, 2, 5, 4, 16, generator=generator)
    post, comb, collapsed = module(streams)
    joined = post.unsqueeze(-1) * torch.tanh(collapsed).unsqueeze(-2) + comb.transpose(-1, -2) @ streams
    expected = torch.autograd.grad(joined, (module.fn, module.base, module.scale), cotangent)
    parts = connection.coefficients
    found = torch.autograd.grad(connection(streams), (parts.weight, parts.bias, parts.scale), cotangent)
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)


def test_weights_can_be_written_back(generator):
    module, other = theirs(), theirs()
    with torch.no_grad():
        other.fn.zero_()
    other.load_state_dict(to_deepseek_v4(ours(module)), strict=False)
    streams = torch.randn(1, 3, 4, 16, generator=generator)
    for mine, reference in zip(other(streams), module(streams), strict=True):
        assert torch.equal(mine, reference)


def test_only_that_form_can_be_written_back():
    for connection in (
        HyperConnection(None, 16, Orthostochastic(num_streams=4)),
        HyperConnection(None, 16, gomhc.Sinkhorn(num_streams=4)),
        HyperConnection(None, 16, gomhc.SinkhornV4(num_streams=4), dynamic=False),
    ):
        with pytest.raises(ValueError, match="expected a dynamic connection with SinkhornV4"):
            to_deepseek_v4(connection)


@pytest.mark.unchecked
def test_weights_of_another_shape_are_refused():
    module = theirs()
    with pytest.raises(ValueError, match=r"fn \(d\(d \+ 2\), d c\).*got \(24, 64\), \(23,\), \(3,\)"):
        from_deepseek_v4(None, module.fn, module.base[1:], module.scale)


def test_its_sinkhorn_is_a_mixing_of_its_own(generator):
    mixing = gomhc.birkhoff.as_mixing("sinkhorn-v4:num_iterations=3", 3)
    assert mixing == gomhc.SinkhornV4(num_streams=3, num_iterations=3, epsilon=1e-6)
    comb = torch.softmax(torch.randn(3, 3, generator=generator), -1)
    logits = comb.log().flatten()
    comb = comb + 1e-6
    for step in range(3):
        comb = comb / (comb.sum(-1, keepdim=True) + 1e-6) if step > 0 else comb
        comb = comb / (comb.sum(-2, keepdim=True) + 1e-6)
    torch.testing.assert_close(mixing(logits), comb.mT)
    with pytest.raises(ValueError, match="epsilon must be a finite number, at least 0; got -1"):
        gomhc.SinkhornV4(num_streams=4, epsilon=-1)
