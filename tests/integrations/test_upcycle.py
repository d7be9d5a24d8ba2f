"""A decoder of transformers that is given streams computes what it did, works as it did, and then learns."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch

import gomhc
from gomhc import Orthostochastic

transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
from decoders import FAMILIES, decoder, moved, tokens  # noqa: E402
from tiny_models import tiny  # noqa: E402

each_family = pytest.mark.parametrize("family", FAMILIES)
SOME = ["gpt2", "gpt_neox", "gemma3_text", "llama"]
"""One for each form of layer."""
some_families = pytest.mark.parametrize("family", SOME)


def coefficients(model):
    return [module for module in model.modules() if isinstance(module, gomhc.layers.Coefficients)]


def assert_same_up_to_rounding(found, expected):
    tolerance = 32 * torch.finfo(torch.float32).eps * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@torch.no_grad()
@each_family
def test_upcycled_model_gives_the_same_logits(family):
    model = decoder(family)
    upcycled = gomhc.upcycle(model, copy=True)
    assert_same_up_to_rounding(upcycled(tokens()).logits, model(tokens()).logits)
    # And this could fail: once the coefficients have moved, so have the logits.
    assert (moved(upcycled)(tokens()).logits - model(tokens()).logits).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("start", ["mean-stream", "equal-streams"])
@each_family
def test_both_twin_starts_give_the_same_logits_and_are_remembered(family, start):
    model = decoder(family)
    upcycled = gomhc.upcycle(model, start=start, copy=True)
    assert_same_up_to_rounding(upcycled(tokens()).logits, model(tokens()).logits)
    again = type(upcycled)(upcycled.config)
    assert {part.start for part in coefficients(again)} == {start}


@pytest.mark.unchecked
def test_a_start_that_changes_the_model_is_refused():
    with pytest.raises(ValueError, match="start must be one of mean-stream, equal-streams, got 'near-identity'"):
        gomhc.upcycle(decoder(), start="near-identity")


@torch.no_grad()
@pytest.mark.parametrize("key", gomhc.PARAMETRIZATIONS)
@pytest.mark.parametrize("dynamic", [True, False])
def test_so_it_does_with_every_parametrization(key, dynamic):
    model = decoder()
    upcycled = gomhc.upcycle(model, 3, key, dynamic=dynamic, copy=True)
    # An approximate method is as far off as its column sums are.
    error = max(gomhc.birkhoff.measures.marginal_error(_static_mix(part)).item() for part in coefficients(upcycled))
    reference = model(tokens()).logits
    difference = (upcycled(tokens()).logits - reference).abs().max()
    assert difference <= (32 * torch.finfo(torch.float32).eps + 8 * error) * reference.abs().max()


def _static_mix(part):
    return part.mixing(part.bias.split(part.sizes)[2])


@torch.no_grad()
@each_family
def test_greedy_generation_from_a_padded_batch_is_the_same(family):
    model = decoder(family)
    upcycled = gomhc.upcycle(model, copy=True)
    prompt = tokens(3, 6)
    mask = torch.ones_like(prompt)
    prompt[0, :3], mask[0, :3] = 0, 0
    options = {"attention_mask": mask, "max_new_tokens": 15, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(upcycled.generate(prompt, **options), model.generate(prompt, **options))


@torch.no_grad()
@some_families
def test_a_model_that_has_learned_gives_the_same_with_a_cache_and_without(family):
    model = moved(gomhc.upcycle(decoder(family)))
    whole = model(tokens()).logits
    first = model(tokens()[:, :6], use_cache=True)
    parts = [first.logits]
    cache = first.past_key_values
    for place in range(6, 11):
        step = model(tokens()[:, place : place + 1], past_key_values=cache, use_cache=True)
        parts.append(step.logits)
        cache = step.past_key_values
    assert_same_up_to_rounding(torch.cat(parts, dim=1), whole)


@torch.no_grad()
@some_families
def test_padding_does_not_reach_the_tokens_of_a_model_that_has_learned(family):
    model = moved(gomhc.upcycle(decoder(family)))
    text = tokens(1, 7)
    padded = torch.cat((torch.zeros(1, 4, dtype=torch.long), text), dim=-1)
    mask = (padded != 0).long()
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    found = model(padded, attention_mask=mask, position_ids=places).logits[:, 4:]
    assert_same_up_to_rounding(found, model(text).logits)


@some_families
def test_gradient_checkpointing_gives_the_same_gradients(family):
    model = moved(gomhc.upcycle(decoder(family))).train()
    plain = _gradients(model)
    model.gradient_checkpointing_enable()
    for name, gradient in _gradients(model).items():
        torch.testing.assert_close(gradient, plain[name])
    assert model.base_model.get_submodule("h" if family == "gpt2" else "layers")[0].gradient_checkpointing


def _gradients(model):
    torch.manual_seed(0)
    model.zero_grad()
    model(tokens(), labels=tokens(), use_cache=False).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_after_two_steps_everything_learns_that_can():
    """The first mix acts on equal streams, and the last one feeds a mean: these two provably cannot."""
    model = gomhc.upcycle(decoder()).train()
    optimizer = torch.optim.AdamW(gomhc.parameter_groups(model, 0.1), lr=1e-2)
    before = [_static_mix(part).detach() for part in coefficients(model)]
    losses = []
    for _ in range(4):
        loss = model(tokens(), labels=tokens()).loss
        optimizer.zero_grad()
        loss.backward()
        gradients = [part.bias.grad.split(part.sizes) for part in coefficients(model)]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for read, write, mix in gradients[1:-1]:
        assert read.norm() > 1e-6
        assert write.norm() > 1e-6
        assert mix.norm() > 1e-6
    for part, matrix in zip(coefficients(model)[1:-1], before[1:-1], strict=True):
        assert (_static_mix(part) - matrix).abs().max() > 1e-4


@torch.no_grad()
def test_in_bfloat16_coefficients_stay_float32_and_the_error_is_that_of_bfloat16():
    model = decoder()
    exact = model(tokens()).logits
    half = model.to(torch.bfloat16)
    upcycled = gomhc.upcycle(half, copy=True)
    assert {p.dtype for part in coefficients(upcycled) for p in part.parameters()} == {torch.float32}
    found = upcycled(tokens()).logits
    assert found.dtype == torch.bfloat16
    assert (found - exact).abs().mean() < 2 * (half(tokens()).logits - exact).abs().mean()


@torch.no_grad()
@pytest.mark.unchecked
def test_it_compiles():
    model = moved(gomhc.upcycle(decoder(num_hidden_layers=2)))
    expected = model(tokens()).logits
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(tokens()).logits, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@each_family
def test_a_saved_model_is_loaded_as_it_was(family, tmp_path):
    model = moved(gomhc.upcycle(decoder(family), 3, gomhc.Kronecker(num_streams=3), dynamic=family != "gpt2"))
    model.save_pretrained(tmp_path)
    loaded = gomhc.from_pretrained(tmp_path)
    assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)
    assert coefficients(loaded)[0].mixing == gomhc.Kronecker(num_streams=3)
    assert (tmp_path / "model.safetensors").exists()


PICKLED = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
print(torch.load(sys.argv[2]).equal(model(torch.load(sys.argv[3])).logits))
"""


@torch.no_grad()
@pytest.mark.parametrize("loaded", [False, True])
def test_a_whole_model_goes_through_pickle_to_another_process(loaded, tmp_path):
    model = moved(gomhc.upcycle(decoder()))
    if loaded:
        model.save_pretrained(tmp_path)
        model = gomhc.from_pretrained(tmp_path)
    expected, files = model(tokens()).logits, [tmp_path / name for name in ("model", "logits", "tokens")]
    for value, file in zip((model, expected, tokens()), files, strict=True):
        torch.save(value, file)
    command = [sys.executable, "-c", PICKLED, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
    assert type(pickle.loads(pickle.dumps(model.config))) is type(model.config)


def test_loaded_in_bfloat16_coefficients_and_loaded_again_also_by_the_auto_classes(tmp_path):
    model = moved(gomhc.upcycle(decoder()))
    model.save_pretrained(tmp_path / "first")
    gomhc.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "second")
    assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)
    assert loaded.config.gomhc["parametrization"]["key"] == "go"


def test_loaded_in_bfloat16_coefficients_stay_float32(tmp_path):
    gomhc.upcycle(decoder()).save_pretrained(tmp_path)
    loaded = gomhc.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for part in coefficients(loaded) for p in part.parameters()} == {torch.float32}
    assert loaded.lm_head.weight.dtype == torch.bfloat16


def test_a_checkpoint_that_gomhc_has_not_changed_is_refused(tmp_path):
    decoder().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"holds a llama that gomhc has not changed.*gomhc\.upcycle"):
        gomhc.from_pretrained(tmp_path)


def test_a_checkpoint_without_some_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    gomhc.upcycle(decoder()).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = {name: value for name, value in load_file(file).items() if not name.endswith("coefficients.bias")}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights of this model: .*coefficients\.bias"):
        gomhc.from_pretrained(tmp_path)


@torch.no_grad()
def test_hidden_states_are_streams_between_the_layers():
    model = decoder()
    upcycled = gomhc.upcycle(model, start="mean-stream", copy=True)
    found = upcycled(tokens(), output_hidden_states=True).hidden_states
    expected = model(tokens(), output_hidden_states=True).hidden_states
    assert [tuple(state.shape) for state in found] == [(2, 11, 32), (2, 11, 4, 32), (2, 11, 4, 32), (2, 11, 32)]
    for streams, state in zip(found[1:-1], expected[1:-1], strict=True):
        assert_same_up_to_rounding(streams.mean(-2), state)
        assert (streams[..., 0, :] - streams[..., 1, :]).abs().max() > 0.01
    assert_same_up_to_rounding(found[-1], expected[-1])


@torch.no_grad()
def test_models_with_another_head_work():
    config = decoder().config
    config.num_labels = 3
    model = transformers.LlamaForSequenceClassification(config).eval()
    upcycled = gomhc.upcycle(model, copy=True)
    assert_same_up_to_rounding(upcycled(tokens()).logits, model(tokens()).logits)


def test_in_place_it_is_the_same_object_and_a_copy_leaves_the_model_alone():
    model = decoder()
    names = set(model.state_dict())
    copy = gomhc.upcycle(model, copy=True)
    assert set(model.state_dict()) == names
    assert model.config.model_type == "llama"
    assert names < set(copy.state_dict())
    assert gomhc.upcycle(model) is model
    assert set(model.state_dict()) == set(copy.state_dict())


def test_first_matrices_come_from_the_generator():
    def draw(seed):
        model = gomhc.upcycle(decoder(), generator=torch.Generator().manual_seed(seed))
        return coefficients(model)[0].bias.detach()

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


def test_lora_trains_adapters_and_coefficients_and_comes_back(tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft")
    base = gomhc.upcycle(decoder(), generator=torch.Generator().manual_seed(0))
    base.save_pretrained(tmp_path / "base")
    options = peft.LoraConfig(target_modules=["q_proj", "v_proj"], modules_to_save=["coefficients"], r=2)
    model = peft.get_peft_model(base, options)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert any("lora" in name for name in trained)
    assert any("coefficients" in name for name in trained)
    assert all("lora" in name or "coefficients" in name for name in trained)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(5):
        loss = model(input_ids=tokens(), labels=tokens()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.eval().save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(gomhc.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=tokens()).logits, model(input_ids=tokens()).logits)
        merged = again.merge_and_unload()
        assert_same_up_to_rounding(merged(input_ids=tokens()).logits, model(input_ids=tokens()).logits)


@pytest.fixture
def registered(monkeypatch):
    """Entries by hand that are forgotten after the test."""
    entries = {}
    monkeypatch.setattr("gomhc.integrations.architectures.ARCHITECTURES", entries)
    monkeypatch.setattr("gomhc.integrations.upcycle.ARCHITECTURES", entries)
    return gomhc.register_architecture


PRE_NORM = {"attention": ("input_layernorm", "self_attn"), "feed_forward": ("post_attention_layernorm", "mlp")}


@torch.no_grad()
def test_an_architecture_can_be_said_by_hand_and_is_saved(registered, tmp_path):
    model = tiny("starcoder2")
    registered("starcoder2", gomhc.Architecture(branches={"first": PRE_NORM["attention"], "then": ("post", "mlp")}))
    with pytest.raises(ValueError, match="has no attribute 'post'"):
        gomhc.upcycle(model)
    registered("starcoder2", gomhc.Architecture(branches=dict(zip(("first", "then"), PRE_NORM.values(), strict=True))))
    upcycled = gomhc.upcycle(model, copy=True)
    assert list(upcycled.model.layers[0].connections) == ["first", "then"]
    assert_same_up_to_rounding(upcycled(tokens()).logits, model(tokens()).logits)
    moved(upcycled).save_pretrained(tmp_path)
    assert torch.equal(gomhc.from_pretrained(tmp_path)(tokens()).logits, upcycled(tokens()).logits)


@pytest.mark.parametrize(
    ("model_type", "options", "message"),
    [
        (
            "granite",
            {"residual_multiplier": 0.22},
            "layer 0 of layers .GraniteDecoderLayer.: it computes more",
        ),
        ("cohere", {}, "has no attribute 'post_attention_layernorm'"),
        ("olmo2", {}, "has no attribute 'input_layernorm'"),
        ("gpt2", {}, "has no list of layers 'layers', which its architecture names; it has h"),
    ],
)
def test_an_architecture_that_is_not_the_models_is_refused_and_nothing_is_changed(
    registered, model_type, options, message
):
    model = tiny(model_type, **options)
    before = {name: id(module) for name, module in model.named_modules()}, type(model), [*model.state_dict()]
    registered(model_type, gomhc.Architecture(branches=PRE_NORM))
    with pytest.raises(ValueError, match=message):
        gomhc.upcycle(model)
    assert before == ({name: id(module) for name, module in model.named_modules()}, type(model), [*model.state_dict()])
    assert not any("forward" in vars(module) for module in model.modules())
    assert model.config.model_type == model_type


def test_an_architecture_that_forgets_the_dropout_of_a_layer_is_refused(registered):
    """Equal in evaluation, and not in training."""
    branches = {"attention": ("self_attn_layer_norm", "self_attn"), "feed_forward": ("final_layer_norm", *FC)}
    registered("opt", gomhc.Architecture(branches=branches, layers="decoder.layers"))
    with pytest.raises(ValueError, match="computes something else with streams, in training: off by"):
        gomhc.upcycle(tiny("opt"))
    gomhc.upcycle(tiny("opt", dropout=0.0))


FC = ("fc1", "activation_fn", "fc2")


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("deepseek_v4", "has hyper-connections of its own; gomhc.swap_mixing"),
        (
            "hrm_text",
            "has no list of layers that are called in turn; those of L_module.layers are called several times",
        ),
        ("gemma3n_text", "layer 0 of layers .Gemma3nTextDecoderLayer.: it takes a part of its hidden states"),
    ],
)
def test_a_model_without_plain_residuals_is_refused(model_type, message):
    with pytest.raises(ValueError, match=message):
        gomhc.upcycle(tiny(model_type))


def test_a_model_that_skips_layers_in_training_is_refused():
    with pytest.raises(ValueError, match="skips layers in training; set its layerdrop to 0"):
        gomhc.upcycle(tiny("opt", layerdrop=0.1))


def test_finding_the_branches_draws_no_random_numbers_and_leaves_modes_alone():
    model = tiny("opt").train()
    model.model.decoder.layers[1].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    gomhc.upcycle(model, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.rand(3), expected)
    plain = [module for name, module in model.named_modules() if "connections" not in name]
    assert [module.training for module in plain] == modes


@torch.no_grad()
def test_streams_of_a_trained_layer_are_those_of_equation_one():
    """By hand, for parallel branches that are multiplied: x_i <- sum_j mix_ij x_j + write_i F(sum_j read_j x_j)."""
    model = moved(gomhc.upcycle(tiny("granite", num_hidden_layers=2), 3, dynamic=False))
    first, last = model.model.layers
    x = model.model.embed_tokens(tokens()) * model.config.embedding_multiplier
    places = model.model.rotary_emb(x, torch.arange(tokens().shape[1])[None])
    mask = torch.full((11, 11), -torch.inf).triu(1)[None, None]
    streams = torch.stack([x] * 3, dim=-2)
    for layer in (first, last):
        for name, norm, branch in (
            ("attention", layer.input_layernorm, lambda h, layer=layer: layer.self_attn(h, places, mask)[0]),
            ("feed_forward", layer.post_attention_layernorm, layer.mlp),
        ):
            read, write, mix = layer.connections[name].coefficients(streams)
            output = branch(norm(torch.einsum("j,btjc->btc", read, streams))) * layer.residual_multiplier
            streams = torch.einsum("ij,btjc->btic", mix, streams) + torch.einsum("i,btc->btic", write, output)
    expected = model.lm_head(model.model.norm(streams.mean(-2))) / model.config.logits_scaling
    assert_same_up_to_rounding(model(tokens()).logits, expected)


@torch.no_grad()
def test_a_norm_behind_the_residual_acts_on_the_mean_of_the_streams():
    """x <- N(x + F(x)): the streams after F all move by N(m) - m, where m is their mean."""
    model = moved(gomhc.upcycle(tiny("bert", num_hidden_layers=1), dynamic=False))
    layer = model.bert.encoder.layer[0]
    x = model.bert.embeddings(tokens())
    streams = torch.stack([x] * 4, dim=-2)
    for name, branch, norm in (
        ("attention", lambda h: layer.attention.output.dense(layer.attention.self(h)[0]), layer.attention.output),
        ("feed_forward", lambda h: layer.output.dense(layer.intermediate(h)), layer.output),
    ):
        read, write, mix = layer.connections[name].coefficients(streams)
        output = branch(torch.einsum("j,btjc->btc", read, streams))
        streams = torch.einsum("ij,btjc->btic", mix, streams) + torch.einsum("i,btc->btic", write, output)
        mean = streams.mean(-2)
        streams = streams + (norm.LayerNorm(mean) - mean)[..., None, :]
    assert_same_up_to_rounding(model(tokens()).logits, model.cls(streams.mean(-2)))


def test_the_mixing_is_a_value_or_text():
    for options, mixing in (
        ({}, Orthostochastic(num_streams=4)),
        ({"num_streams": 4, "mixing": "go"}, Orthostochastic(num_streams=4)),
        ({"num_streams": 3, "mixing": "kromhc"}, gomhc.Kronecker(num_streams=3)),
        ({"mixing": gomhc.Sinkhorn(num_streams=2)}, gomhc.Sinkhorn(num_streams=2)),
    ):
        assert {part.mixing for part in coefficients(gomhc.upcycle(decoder(), **options))} == {mixing}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, "gone"), "one of go, .*got 'gone'"),
        ((3, Orthostochastic(num_streams=4)), "num_streams=3, but Orthostochastic.*mixes 4 streams"),
    ],
)
def test_a_parametrization_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gomhc.upcycle(decoder(), *arguments)


def test_a_model_with_streams_is_refused():
    with pytest.raises(ValueError, match="already has streams"):
        gomhc.upcycle(gomhc.upcycle(decoder()))


@pytest.mark.unchecked
def test_a_wrapped_model_is_refused():
    with pytest.raises(ValueError, match="upcycle first, and then wrap it"):
        gomhc.upcycle(torch.nn.Sequential(decoder()))


def test_a_model_whose_layers_another_library_has_patched_is_refused():
    model = decoder()
    model.model.layers[1].forward = model.model.layers[1].forward
    with pytest.raises(ValueError, match="another library has replaced the forward"):
        gomhc.upcycle(model)


def test_the_core_does_not_import_transformers():
    code = "import sys, gomhc, gomhc.inspection; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_transformers_the_error_says_what_to_install():
    code = "import sys; sys.modules['transformers'] = None; import gomhc; gomhc.upcycle"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "gomhc.upcycle needs transformers; install it with: pip install 'gomhc[hf]'" in done.stderr
