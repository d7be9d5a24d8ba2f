"""A network starts as its plain residual twin, and which coefficient gets a gradient at which step.

The table of `Coefficients.reset_parameters` is FIRST_STEP here.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from variants import REGISTERED, each

import gomhc
from gomhc import HyperConnection, LearnedReadout, Orthostochastic
from gomhc.birkhoff.measures import marginal_error
from gomhc.layers import DEFAULT_START, Coefficients
from gomhc.models import GPT, GPTConfig

D, C = 4, 12
TWINS = ["mean-stream", "equal-streams"]
NEVER = math.inf


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Branch(nn.Module):
    """Behind a norm without epsilon, so that the scale of its input cannot be seen."""

    def __init__(self, dim=C):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=0)
        self.up, self.out = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.out(torch.tanh(self.up(self.norm(x))))


def connections_of(start, mixing, num_connections=4, **options):
    return nn.ModuleList(
        HyperConnection(Branch(), C, mixing, start=start, layer_index=index, **options)
        for index in range(num_connections)
    )


@each(REGISTERED)
def test_every_mixing_starts_with_unit_row_and_column_sums(parametrization, generator):
    logits = parametrization.initial_logits(generator).double()
    rounding = 4 * D * torch.finfo(torch.float32).eps  # of the logits
    assert marginal_error(parametrization(logits)) < rounding + 2 * getattr(parametrization, "epsilon", 0)


@pytest.mark.parametrize("start", TWINS)
@each(REGISTERED)
def test_network_starts_as_its_plain_residual_twin(parametrization, start):
    """Over twelve connections, also in bfloat16, where the streams are rounded after each of them."""
    connections = connections_of(start, parametrization, 12)
    x = torch.randn(3, 5, C)
    plain = x
    for connection in connections:
        plain = plain + connection.branch(plain)
    for dtype in (torch.float32, torch.bfloat16):
        tolerance = 12 * (torch.finfo(dtype).eps + getattr(parametrization, "epsilon", 0)) * plain.abs().max()
        streams = gomhc.expand(x, D).to(dtype)
        for connection in connections:
            branch_input, state = connection.read(streams)
            streams = connection.write(state, connection.branch(branch_input.float()).to(dtype))
        for readout in (gomhc.readout, LearnedReadout(C, D)):
            assert (readout(streams).float() - plain).abs().max() < tolerance
        different = streams.float().std(dim=-2).max()
        assert different < tolerance if start == "equal-streams" else different > 0.01


@pytest.mark.parametrize("start", TWINS)
@pytest.mark.parametrize("d", [1, 3, 4])
def test_twin_in_float64_is_exact_to_the_rounding_of_float64(start, d):
    connections = [
        HyperConnection(Branch(), C, "go", d, start=start, layer_index=index, dtype=torch.float64) for index in range(6)
    ]
    x = torch.randn(3, C, dtype=torch.float64)
    plain, streams = x, gomhc.expand(x, d)
    for connection in connections:
        connection.branch.double()
        plain, streams = plain + connection.branch(plain), connection(streams)
    readout = LearnedReadout(C, d, dtype=torch.float64)(streams)
    assert (readout - plain).abs().max() < 100 * torch.finfo(torch.float64).eps * plain.abs().max()


@pytest.mark.parametrize("start", TWINS)
def test_gpt_starts_as_its_plain_twin(start):
    sizes = {"num_layers": 6, "num_heads": 2, "num_channels": 16, "context_length": 12, "vocab_size": 11}
    plain = GPT(GPTConfig(**sizes))
    tokens = torch.randint(11, (2, 12))
    for readout in ("mean", "learned"):
        model = GPT(GPTConfig(**sizes, mixing="go", start=start, readout=readout, total_leak=0.3, initial_scale=0.5))
        model.load_state_dict(plain.state_dict(), strict=False)
        torch.testing.assert_close(model(tokens)[0], plain(tokens)[0], rtol=1e-5, atol=1e-5)


FIRST_STEP = {
    "mean-stream": {"read": 1, "write": 1, "mix": 2},
    "equal-streams": {"read": 2, "write": 1, "mix": 2},
}


def first_step(start, place, coefficient, readout):
    acts_on_equal_streams = place == "first" and coefficient in ("read", "mix")
    feeds_a_mean = place == "last" and coefficient == "mix" and readout == "mean"
    return NEVER if acts_on_equal_streams or feeds_a_mean else FIRST_STEP[start][coefficient]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("readout", ["mean", "learned"])
@pytest.mark.parametrize("start", TWINS)
def test_a_coefficient_gets_its_first_gradient_at_the_step_of_the_table(start, readout, dynamic):
    connections = connections_of(start, "go", dynamic=dynamic, initial_scale=1.0).double()
    reduce = LearnedReadout(C, D).double() if readout == "learned" else None
    if reduce:
        nn.init.ones_(reduce.scale)  # or the gradients of the last mix, which come through it, would be tiny
    optimizer = torch.optim.SGD([*connections.parameters(), *(reduce.parameters() if reduce else ())], lr=0.005)
    x, target = torch.randn(2, 16, C, dtype=torch.float64)
    for step in (1, 2, 3):
        streams = gomhc.expand(x, D)
        for connection in connections:
            streams = connection(streams)
        optimizer.zero_grad()
        out = reduce(streams) if reduce else gomhc.readout(streams)
        (out - target).square().sum().backward()
        for index, place in enumerate(("first", "between", "between", "last")):
            part = connections[index].coefficients
            for number, coefficient in enumerate(("read", "write", "mix")):
                first = first_step(start, place, coefficient, readout)
                case = f"{coefficient} of the {place} connection, step {step}"
                assert learns(part.bias.grad.split(part.sizes)[number]) == (step >= first), case
                if dynamic:
                    assert learns(part.weight.grad.split(part.sizes)[number]) == (step >= first), case
                    assert learns(part.scale.grad[number]) == (step >= first + 1), case
        optimizer.step()


def learns(gradient):
    """Whether it is not zero: gradients that vanish by a proof are rounding, and the others are far larger."""
    size = gradient.abs().max().item()
    assert size < 1e-12 or size > 1e-9, f"neither zero nor not: {size:.1g}"
    return size > 1e-9


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("layer_index", [0, 5])
def test_reads_of_equal_streams_sum_to_one_and_favour_one_stream(d, layer_index):
    coefficients = Coefficients(C, Orthostochastic(num_streams=d), start="equal-streams", layer_index=layer_index)
    read, write, _ = coefficients(torch.randn(d, C))
    assert read.sum().item() == pytest.approx(1, abs=4e-7)
    assert read.argmax().item() == layer_index % d
    assert torch.equal(write, torch.ones(d))
    if d > 1:
        assert read.max().item() == pytest.approx(0.7, abs=1e-6)


@pytest.mark.parametrize("num_layers", [2, 8])
def test_connections_share_the_total_leak(num_layers):
    config = GPTConfig(num_layers=num_layers, num_heads=2, num_channels=16, vocab_size=11, mixing="go", total_leak=0.4)
    parts = [part for part in GPT(config).modules() if isinstance(part, Coefficients)]
    mixes = [part.mixing(part.bias.split(part.sizes)[2]) for part in parts]
    leaks = [1 - mix.diagonal().mean().item() for mix in mixes]
    assert leaks == pytest.approx([0.4 / (2 * num_layers)] * 2 * num_layers, rel=1e-3)
    with pytest.raises(ValueError, match=rf"total_leak must be a finite number, at least .* at most {num_layers}; got"):
        GPTConfig(num_layers=num_layers, mixing="go", total_leak=num_layers + 0.1)
    with pytest.raises(ValueError, match="total_leak must be"):
        GPTConfig(num_layers=num_layers, mixing="go", total_leak=1e-12)
    least = GPTConfig(num_layers=num_layers, num_heads=2, num_channels=16, vocab_size=11, mixing="kronecker",
                      num_streams=8, total_leak=2e-10 * num_layers)  # fmt: skip
    assert all(torch.isfinite(weight).all() for weight in GPT(least).parameters())


def test_initial_scale_is_the_scale():
    connection = HyperConnection(None, C, "go", initial_scale=0.25)
    assert connection.coefficients.scale.tolist() == [0.25] * 3
    with pytest.raises(ValueError, match="initial_scale must be a finite number; got nan"):
        HyperConnection(None, C, "go", initial_scale=math.nan)


def test_all_parts_have_one_default_start():
    from gomhc.lab.training.recipe import Recipe

    starts = {
        Coefficients(C, "go", layer_index=3).start,
        HyperConnection(None, C, layer_index=0).coefficients.start,
        GPTConfig().start,
        Recipe().start,
    }
    assert starts == {DEFAULT_START}


def test_without_an_index_streams_differ_from_the_start():
    """With the index of none, all connections would favour the same stream, and the others would stay alike."""
    assert HyperConnection(None, C).coefficients.start == "mean-stream"
