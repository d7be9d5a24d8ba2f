"""Layers keep torch.nn's conventions: a mixing by value or name, device and dtype, the meta device, weight decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import gomhc
from gomhc import HyperConnection, LearnedReadout, Orthostochastic, Sinkhorn
from gomhc.layers import Coefficients, parameter_groups
from gomhc.models import GPT, GPTConfig

STARTS = ("mean-stream", "near-identity", "deepseek-v4")
TINY = {"num_layers": 2, "num_heads": 2, "num_channels": 16, "context_length": 12, "vocab_size": 11}


def seeded():
    return torch.Generator().manual_seed(0)


def assert_equal_parameters(module, expected):
    parameters = dict(module.named_parameters())
    assert parameters.keys() == dict(expected.named_parameters()).keys()
    for name, parameter in expected.named_parameters():
        assert torch.equal(parameters[name], parameter), name


class TestMixing:
    def test_is_go_of_four_streams_unless_told_otherwise(self):
        assert HyperConnection(None, 8).mixing == Coefficients(8).mixing == Orthostochastic(num_streams=4)

    def test_is_a_value_or_a_key_or_a_name_with_options(self):
        assert HyperConnection(None, 8, "mhc:num_iterations=3").mixing == Sinkhorn(num_streams=4, num_iterations=3)
        assert HyperConnection(None, 8, "go", 3).mixing == Orthostochastic(num_streams=3)
        assert HyperConnection(None, 8, mixing=Sinkhorn(num_streams=3)).mixing == Sinkhorn(num_streams=3)
        assert Coefficients(8, "go", 2).mixing == Orthostochastic(num_streams=2)

    def test_of_another_number_of_streams_is_refused(self):
        with pytest.raises(ValueError, match=r"num_streams=4, but Sinkhorn.* mixes 3 streams; leave num_streams out"):
            HyperConnection(None, 8, Sinkhorn(num_streams=3), num_streams=4)

    def test_of_a_weight_has_as_many_streams_as_the_weight_has_rows(self):
        layer = gomhc.doubly_stochastic(nn.Linear(3, 3), "weight")
        assert layer.parametrizations.weight[0].mixing == Orthostochastic(num_streams=3)
        layer = gomhc.doubly_stochastic(nn.Linear(5, 5), "weight", "sinkhorn")
        assert layer.parametrizations.weight[0].mixing == Sinkhorn(num_streams=5)

    @pytest.mark.parametrize(("weight", "message"), [("bias", r"\(\*batch, d, d\)"), ("weight", r"\(\*batch, 5, 5\)")])
    def test_of_a_weight_that_is_not_square_is_refused(self, weight, message):
        with pytest.raises(ValueError, match=rf"{message}, but '{weight}' has shape"):
            gomhc.doubly_stochastic(nn.Linear(5, 4), weight)


class TestDeviceAndDtype:
    @pytest.mark.parametrize("make", [lambda **o: HyperConnection(None, 8, **o), lambda **o: LearnedReadout(8, 4, **o)])
    def test_are_those_of_the_parameters(self, make):
        module = make(device="meta", dtype=torch.float64)
        assert {(p.device.type, p.dtype) for p in module.parameters()} == {("meta", torch.float64)}
        assert {p.dtype for p in make(dtype=torch.bfloat16).parameters()} == {torch.bfloat16}

    def test_half_precision_parameters_give_streams_of_their_dtype(self):
        connection = HyperConnection(torch.tanh, 8, device="cpu", dtype=torch.bfloat16)
        assert connection(torch.randn(2, 4, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


class TestMeta:
    @pytest.mark.parametrize("dynamic", [True, False])
    @pytest.mark.parametrize("start", STARTS)
    def test_reset_gives_what_constructing_gives(self, start, dynamic):
        options = {"start": start, "layer_index": 3, "dynamic": dynamic}
        expected = HyperConnection(None, 8, "go", **options, generator=seeded())
        with torch.device("meta"):
            connection = HyperConnection(None, 8, "go", **options)
        connection.to_empty(device="cpu").reset_parameters(seeded())
        assert_equal_parameters(connection, expected)

    def test_reset_draws_from_the_global_generator_too(self):
        torch.manual_seed(0)
        expected = HyperConnection(None, 8, start="near-identity")
        with torch.device("meta"):
            connection = HyperConnection(None, 8, start="near-identity")
        connection.to_empty(device="cpu")
        torch.manual_seed(0)
        connection.reset_parameters()
        assert_equal_parameters(connection, expected)

    def test_a_branch_is_not_reset(self):
        connection = HyperConnection(nn.Linear(8, 8), 8)
        before = connection.branch.weight.detach().clone()
        connection.reset_parameters()
        assert torch.equal(connection.branch.weight, before)

    def test_reset_undoes_training(self):
        connection = HyperConnection(None, 8, generator=seeded())
        with torch.no_grad():
            for parameter in connection.parameters():
                parameter.add_(1)
        connection.reset_parameters(seeded())
        assert_equal_parameters(connection, HyperConnection(None, 8, generator=seeded()))

    def test_learned_readout(self):
        with torch.device("meta"):
            readout = LearnedReadout(8, 4)
        readout.to_empty(device="cpu").reset_parameters()
        assert_equal_parameters(readout, LearnedReadout(8, 4))

    @pytest.mark.parametrize("options", [{}, {"mixing": "go", "readout": "learned"}, {"mixing": "mhc-lite"}], ids=str)
    @pytest.mark.parametrize("start", STARTS)
    def test_gpt(self, options, start):
        config = GPTConfig(**TINY, **options, start=start)
        expected = GPT(config, seeded())
        with torch.device("meta"):
            model = GPT(config)
        assert all(parameter.is_meta for parameter in model.parameters())
        model.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(torch.nan)
        model.reset_parameters(seeded())
        assert_equal_parameters(model, expected)


class TestWeightDecay:
    def test_is_lost_by_the_logits_of_a_mixing_alone(self):
        """Other people's parametrizations keep theirs, also where they stand behind one of ours."""

        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.factor = nn.Parameter(torch.full((1, 1), 2.0))

            def forward(self, x):
                return self.factor * x

        model = nn.ModuleDict(
            {
                "normed": parametrizations.weight_norm(nn.Linear(4, 6)),
                "orthogonal": parametrizations.orthogonal(nn.Linear(4, 4, bias=False)),
                "mixed": gomhc.doubly_stochastic(nn.Linear(4, 4, bias=False), "weight"),
                "both": nn.Module(),
            }
        )
        model["both"].weight = nn.Parameter(torch.randn(2, 4, 4))
        gomhc.doubly_stochastic(model["both"], "weight")
        parametrize.register_parametrization(model["both"], "weight", Twice())
        decaying, others = ({id(p) for p in group["params"]} for group in parameter_groups(model, 0.1))
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        assert {names[parameter] for parameter in decaying} == {
            "normed.parametrizations.weight.original0",
            "normed.parametrizations.weight.original1",
            "orthogonal.parametrizations.weight.original",
            "both.parametrizations.weight.1.factor",
        }
        assert {names[parameter] for parameter in others} == {
            "normed.bias",
            "mixed.parametrizations.weight.original",
            "both.parametrizations.weight.original",
        }

    def test_is_kept_by_a_weight_norm_on_the_coefficients_own_weight(self):
        connection = HyperConnection(None, 8)
        parametrizations.weight_norm(connection.coefficients, "weight")
        decaying, others = (group["params"] for group in parameter_groups(connection, 0.1))
        assert [tuple(parameter.shape) for parameter in decaying] == [(36, 1), (36, 32)]
        assert [tuple(parameter.shape) for parameter in others] == [(36,), (3,)]
