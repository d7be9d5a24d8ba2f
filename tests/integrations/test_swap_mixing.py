"""A model with DeepSeek-V4's hyper-connections gets another mixing, keeps what it has, and can have Sinkhorn back."""

from __future__ import annotations

import warnings

import pytest
import torch

import gomhc
from gomhc import Promise

transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
from decoders import decoder, tokens, with_sinkhorn  # noqa: E402

from gomhc.integrations.deepseek_v4 import to_coefficients, transfer  # noqa: E402

MODELS = ["deepseek_v4", "glm5_next_text"]
each_model = pytest.mark.parametrize("model_type", MODELS)
EXPRESSIVE = ["go", "go-unitary", "sinkhorn", "permutations", "transportation"]
"""Keys of methods that reach the matrices of a random model."""
each_swap = pytest.mark.parametrize(
    ("model_type", "key"), [*(("deepseek_v4", key) for key in EXPRESSIVE), ("glm5_next_text", "go")]
)
EPS = torch.finfo(torch.float32).eps


def output(model):
    found = model(tokens())
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


def sinkhorn_modules(model):
    return [module for module in model.modules() if hasattr(module, "hc_sinkhorn_iters")]


@torch.no_grad()
@pytest.mark.parametrize("key", gomhc.PARAMETRIZATIONS)
def test_the_matrix_of_the_bias_stays_as_near_as_the_fit_comes_and_reads_and_writes_stay(key):
    source = to_coefficients(sinkhorn_modules(with_sinkhorn())[0])
    target, distance = transfer(source, gomhc.PARAMETRIZATIONS[key](num_streams=4))
    streams = torch.zeros(1, 4, 32)  # nothing steers: the coefficients are those of the bias
    before, after = source(streams), target(streams)
    assert torch.equal(after.read, before.read)
    assert torch.equal(after.write, before.write)
    left = torch.linalg.matrix_norm(after.mix - before.mix).item()
    assert left == pytest.approx(distance, rel=1e-3, abs=1e-5)
    assert key not in EXPRESSIVE or distance < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("key", ["go", "go-unitary", "permutations"])  # smooth ones
def test_tokens_steer_as_before_to_first_order(key, generator):
    """Half the steering leaves a quarter of the error."""
    streams = torch.randn(50, 4, 32, generator=generator)
    for module in sinkhorn_modules(with_sinkhorn()):
        source = to_coefficients(module)
        target, _ = transfer(source, gomhc.PARAMETRIZATIONS[key](num_streams=4))
        errors = []
        for _ in range(3):
            errors.append((source(streams).mix - target(streams).mix).abs().max().item())
            source.scale.mul_(0.5)
            target.scale.mul_(0.5)
        assert errors[1] < 0.35 * errors[0]
        assert errors[2] < 0.35 * errors[1]


@torch.no_grad()
@each_swap
def test_swapped_there_and_back_it_equals_the_original(model_type, key):
    """To rounding here, where twenty iterations converge; with large logits, to what they leave."""
    model = with_sinkhorn(model_type)
    swapped = gomhc.swap_mixing(model, key, copy=True)
    assert not sinkhorn_modules(swapped)
    back = gomhc.swap_mixing(swapped, None)
    assert set(back.state_dict()) == set(model.state_dict())
    assert back.config.to_dict() == model.config.to_dict()
    assert type(back.config) is type(model.config)
    expected = output(model)
    torch.testing.assert_close(output(back), expected, rtol=0, atol=64 * EPS * expected.abs().max().item())


@torch.no_grad()
def test_where_the_fit_is_not_exact_it_is_said():
    model = with_sinkhorn()
    with pytest.warns(UserWarning, match=r"the matrices of Identity.* away from them"):
        swapped = gomhc.swap_mixing(model, "identity", copy=True)
    assert (output(swapped) - output(model)).abs().max() > 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gomhc.swap_mixing(model, "go", copy=True)


@each_model
def test_it_trains_ten_steps_with_go(model_type):
    model = gomhc.swap_mixing(with_sinkhorn(model_type, num_layers=2), "go").train()
    named = model.named_parameters()
    biases = {name: value.detach().clone() for name, value in named if name.endswith("_hc.coefficients.bias")}
    optimizer = torch.optim.AdamW(gomhc.parameter_groups(model, 0.1), lr=1e-2)
    losses = []
    for _ in range(10):
        scores = output(model)
        if model_type != "deepseek_v4":
            scores = scores @ model.embed_tokens.weight.T
        loss = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    moved = [(model.get_parameter(name)[8:] - bias[8:]).abs().max().item() for name, bias in biases.items()]
    assert len(moved) == 4
    assert max(moved[1:]) > 1e-3  # the first acts on equal streams
    for module in model.modules():
        if isinstance(module, gomhc.layers.Coefficients):
            assert module.mixing.promise == Promise.EXACT


@torch.no_grad()
@each_model
def test_a_swapped_model_is_saved_and_loaded(model_type, tmp_path):
    with_sinkhorn(model_type).save_pretrained(tmp_path / "plain")
    original = type(with_sinkhorn(model_type)).from_pretrained(tmp_path / "plain")
    swapped = gomhc.swap_mixing(original, "go:initial_leak=0.2")
    swapped.save_pretrained(tmp_path / "swapped")
    loaded = gomhc.from_pretrained(tmp_path / "swapped")
    assert torch.equal(output(loaded), output(swapped))
    assert loaded.config.gomhc["parametrization"]["initial_leak"] == 0.2
    back = gomhc.swap_mixing(loaded, None)
    back.save_pretrained(tmp_path / "back")
    again = type(with_sinkhorn(model_type)).from_pretrained(tmp_path / "back")
    assert torch.equal(output(again), output(back))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:after 10000 iterations")
def test_a_matrix_that_sinkhorn_left_unbalanced_is_balanced_first():
    model = with_sinkhorn()
    for module in sinkhorn_modules(model):
        module.base.mul_(20)
    source = to_coefficients(module)
    mix = source.mixing(source.bias[8:])
    assert gomhc.birkhoff.measures.marginal_error(mix) > 1e-3
    target, _ = transfer(source, gomhc.Transportation(num_streams=4))
    found = target.mixing(target.bias[8:])
    assert (found - mix).abs().max() < 0.2
    assert gomhc.birkhoff.measures.marginal_error(found) < 1e-5


def test_a_model_without_such_connections_is_refused():
    with pytest.raises(ValueError, match=r"LlamaForCausalLM has no hyper-connections.*gomhc\.upcycle"):
        gomhc.swap_mixing(decoder(), "go")


def test_a_parametrization_of_another_number_of_streams_is_refused():
    with pytest.raises(ValueError, match=r"num_streams=4, but Orthostochastic.* mixes 3 streams"):
        gomhc.swap_mixing(with_sinkhorn(), gomhc.Orthostochastic(num_streams=3))
