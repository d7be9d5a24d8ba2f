"""A model with hyper-connections of its own gets another mixing, keeps what it has, and can have its own back."""

from __future__ import annotations

import warnings

import pytest
import torch

import gomhc
from gomhc import Promise

transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
from decoders import decoder, moved, tokens, with_sinkhorn, with_unmixed_streams  # noqa: E402

from gomhc.integrations.deepseek_v4 import to_coefficients, transfer  # noqa: E402
from gomhc.integrations.unmixed_streams import AddedMixing  # noqa: E402

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
    with pytest.warns(UserWarning, match=r"the matrices of Identity.* away from the model's"):
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
    with pytest.raises(ValueError, match=r"got LlamaForCausalLM; gomhc\.upcycle"):
        gomhc.swap_mixing(decoder(), "go")


def test_a_parametrization_of_another_number_of_streams_is_refused():
    with pytest.raises(ValueError, match=r"num_streams=4, but Orthostochastic.* mixes 3 streams"):
        gomhc.swap_mixing(with_sinkhorn(), gomhc.Orthostochastic(num_streams=3))


# Models that do not mix their streams
# ----------------------------------------------------------------------------------------------------------------------

each_unmixed = pytest.mark.parametrize("model_type", ["hy_v4", "qwen4_exp"])
ignore_distance = pytest.mark.filterwarnings("ignore:the matrices of .* are up to")


def mixings(model):
    return [module for module in model.modules() if isinstance(module, AddedMixing)]


@torch.no_grad()
@each_unmixed
@ignore_distance
def test_an_added_mixing_that_is_the_identity_changes_nothing(model_type):
    model = with_unmixed_streams(model_type)
    swapped = gomhc.swap_mixing(model, "go", copy=True)
    assert len(mixings(swapped)) == 4
    assert (output(swapped) - output(model)).abs().max() > 1e-5
    for part in mixings(swapped):
        part.bias.zero_()
    assert torch.equal(output(swapped), output(model))
    options = {"max_new_tokens": 6, "do_sample": False}
    assert torch.equal(swapped.generate(tokens(), **options), model.generate(tokens(), **options))


@torch.no_grad()
@each_unmixed
@ignore_distance
def test_an_added_matrix_is_applied_to_the_streams_not_its_transpose(model_type):
    """Between the connections of a layer, streams differ from those of the plain model by (mix - I) x."""
    cycle = torch.eye(4).roll(1, dims=0)  # stream i gets stream i - 1
    model = with_unmixed_streams(model_type)
    swapped = gomhc.swap_mixing(model, gomhc.Transportation(num_streams=4), copy=True)
    for part in mixings(swapped):
        part.mixing = lambda logits: torch.eye(4).expand(*logits.shape[:-1], 4, 4)
    mixings(swapped)[2].mixing = lambda logits: cycle.expand(*logits.shape[:-1], 4, 4)
    first, second = (
        ("attn_hc", "ffn_hc") if model_type == "hy_v4" else ("attn_hyper_connection", "mlp_hyper_connection")
    )
    entering = {}
    for owner, one in (("plain", model), ("swapped", swapped)):
        layer = one.model.layers[1]
        for name in (first, second):
            getattr(layer, name).register_forward_pre_hook(
                lambda module, inputs, key=(owner, name): entering.update({key: inputs[0].reshape(2, 11, 4, 32)})
            )
        output(one)
    streams = entering["plain", first]
    assert torch.equal(entering["swapped", first], streams)
    expected = entering["plain", second] + streams.roll(1, dims=-2) - streams
    torch.testing.assert_close(entering["swapped", second], expected, rtol=0, atol=8 * EPS * streams.abs().max().item())


@torch.no_grad()
@each_unmixed
@ignore_distance
def test_an_added_mixing_goes_without_a_trace(model_type):
    model = with_unmixed_streams(model_type)
    swapped = gomhc.swap_mixing(gomhc.swap_mixing(model, "go", copy=True), "permutations")
    assert {type(part.mixing) for part in mixings(swapped)} == {gomhc.Permutations}
    back = gomhc.swap_mixing(swapped, None)
    assert [type(module) for module in back.modules()] == [type(module) for module in model.modules()]
    assert back.config.to_dict() == model.config.to_dict()
    assert torch.equal(output(back), output(model))


@torch.no_grad()
@each_unmixed
@ignore_distance
def test_one_added_mixing_follows_another(model_type):
    """Exactly in its matrix; half the steering leaves a quarter of the error."""
    model = moved(gomhc.swap_mixing(with_unmixed_streams(model_type), "go"), 0.1)
    errors = []
    for scale in (0.04, 0.02, 0):
        for part in mixings(model):
            part.scale.fill_(scale)
        errors.append((output(gomhc.swap_mixing(model, "permutations", copy=True)) - output(model)).abs().max().item())
    assert errors[2] < 64 * EPS
    assert errors[1] < 0.35 * errors[0]


@torch.no_grad()
@each_unmixed
@ignore_distance
def test_a_model_with_an_added_mixing_is_saved_and_loaded(model_type, tmp_path):
    model = moved(gomhc.swap_mixing(with_unmixed_streams(model_type), "go:initial_leak=0.2"))
    original = type(with_unmixed_streams(model_type))
    model.save_pretrained(tmp_path)
    for loaded in (gomhc.from_pretrained(tmp_path), transformers.AutoModelForCausalLM.from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
        # torch's products round by where in memory a weight is.
        torch.testing.assert_close(output(loaded), output(model), rtol=0, atol=16 * EPS)
        assert mixings(loaded)[0].mixing.initial_leak == 0.2
    with pytest.raises(ValueError, match=r"load it by gomhc\.from_pretrained"):
        original.from_pretrained(tmp_path)
    assert {parameter.dtype for part in mixings(model.bfloat16()) for parameter in part.parameters()} == {torch.float32}
    assert output(model).isfinite().all()


@each_unmixed
@ignore_distance
def test_an_added_mixing_learns(model_type):
    model = gomhc.swap_mixing(with_unmixed_streams(model_type), "go").train()
    model(tokens(), labels=tokens()).loss.backward()
    # The first acts on equal streams.
    assert all(part.bias.grad.norm() > 1e-7 and part.weight.grad.norm() > 1e-9 for part in mixings(model)[1:])


@each_unmixed
def test_how_far_the_first_matrices_are_from_the_identity_is_said(model_type):
    with pytest.warns(UserWarning, match=r"up to 0\.\d+ away from the model's.*a smaller initial_leak comes closer"):
        gomhc.swap_mixing(with_unmixed_streams(model_type), "go")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gomhc.swap_mixing(with_unmixed_streams(model_type), "identity")
