"""The frac-connection is its equations, starts as the plain residual connection, and learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gomhc
from gomhc import FracConnection
from gomhc.models import GPT, GPTConfig

C, M = 12, 3
TINY = {"num_layers": 2, "num_heads": 2, "num_channels": 12, "context_length": 12, "vocab_size": 11}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def scrambled(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return module


@pytest.mark.parametrize("dynamic", [True, False])
def test_it_is_its_equations(dynamic):
    """Written out for one token in float64."""
    connection = scrambled(FracConnection(nn.Linear(C, C), C, M, dynamic=dynamic)).double()
    x = torch.randn(C, dtype=torch.float64)
    h = x.split(C // M)
    coefficients = connection.bias.clone()
    if dynamic:
        for j in range(M):
            normed = h[j] / (h[j].square().mean() + 1e-6).sqrt()
            steering = torch.tanh(connection.weight @ normed)
            coefficients[:M, j] += connection.scale[0] * steering[:M]
            coefficients[M, j] += connection.scale[1] * steering[M]
            coefficients[M + 1 :, j] += connection.scale[2] * steering[M + 1 :]
    read, write, mix = coefficients[:M], coefficients[M], coefficients[M + 1 :]
    g = torch.cat([sum(read[i, j] * h[j] for j in range(M)) for i in range(M)])
    out = connection.branch(g).split(C // M)
    expected = torch.cat([sum(mix[i, j] * h[j] for j in range(M)) + write[i] * out[i] for i in range(M)])
    torch.testing.assert_close(connection(x), expected)
    torch.testing.assert_close(connection(x.expand(2, 3, C))[1, 2], expected)


@pytest.mark.parametrize("dynamic", [True, False])
def test_network_starts_as_its_plain_residual_twin(dynamic):
    branch, x = nn.Linear(C, C), torch.randn(2, 5, C)
    assert torch.equal(FracConnection(branch, C, M, dynamic=dynamic)(x), x + branch(x))
    plain, split = GPT(GPTConfig(**TINY)), GPT(GPTConfig(**TINY, num_fractions=M, dynamic=dynamic))
    split.load_state_dict(plain.state_dict(), strict=False)
    tokens = torch.randint(11, (2, 12))
    torch.testing.assert_close(split(tokens)[0], plain(tokens)[0])
    assert sum(parameter.numel() for parameter in split.parameters()) == split.config.num_parameters


def test_every_coefficient_has_a_gradient_at_the_second_step():
    connections = nn.Sequential(*(FracConnection(nn.Linear(C, C), C, M) for _ in range(3))).double()
    x, target = torch.randn(2, 16, C, dtype=torch.float64)
    optimizer = torch.optim.SGD(connections.parameters(), lr=0.1)
    for step in (1, 2):
        optimizer.zero_grad()
        (connections(x) - target).square().sum().backward()
        for connection in connections:
            assert connection.bias.grad.abs().min() > 0
            assert connection.weight.grad.abs().min() > 0
            assert (connection.scale.grad.abs().min() > 0) == (step > 1)  # weights are zero at first
        optimizer.step()


def test_what_a_branch_returns_behind_its_output_comes_back():
    connection = FracConnection(lambda x, scale: (scale * x, "cache"), C, M)
    out, cache = connection(torch.randn(2, C), scale=2.0)
    assert (out.shape, cache) == ((2, C), "cache")


def test_coefficients_are_float32_in_a_bfloat16_network():
    connection, x = scrambled(FracConnection(lambda x: x, C, M)), torch.randn(4, C).bfloat16()
    out = connection(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), connection(x.float()), rtol=0.03, atol=0.03)


def test_static_coefficients_do_not_decay():
    decaying, others = gomhc.parameter_groups(FracConnection(nn.Linear(C, C), C, M), 0.1)
    assert [parameter.shape for parameter in decaying["params"]] == [(2 * M + 1, C // M), (C, C)]
    assert len(others["params"]) == 3


def test_reset_parameters_after_the_meta_device():
    with torch.device("meta"):
        connection = FracConnection(nn.Linear(C, C), C, M)
    connection.to_empty(device="cpu").reset_parameters()
    assert torch.equal(connection.bias[:M], torch.eye(M))


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="num_fractions must be at least 1 and divide dim=12, got 5"):
        FracConnection(nn.Identity(), C, 5)
    with pytest.raises(ValueError, match="num_fractions must divide num_channels=12, got 5"):
        GPTConfig(**TINY, num_fractions=5)
    with pytest.raises(ValueError, match="num_fractions=2 splits one plain stream; leave the mixing out"):
        GPTConfig(**TINY, num_fractions=2, mixing="go")
