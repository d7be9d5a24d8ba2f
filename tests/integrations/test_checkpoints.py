"""A model that gomhc has changed is loaded as it was, by whatever loads models, or it is refused."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys

import pytest
import torch

import gomhc

transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
from decoders import FAMILIES, GROUPED, decoder, moved, of_images_and_text, tokens, with_sinkhorn  # noqa: E402

HEADS = ("", "ForQuestionAnswering", "ForSequenceClassification", "ForTokenClassification")


def with_streams(**changes):
    return moved(gomhc.upcycle(decoder(**changes), 3))


def coefficients(model):
    return [module for module in model.modules() if isinstance(module, gomhc.layers.Coefficients)]


def dtypes(model):
    return {parameter.dtype for part in coefficients(model) for parameter in part.parameters()}


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Refused where the streams would be lost
# ----------------------------------------------------------------------------------------------------------------------

WITHOUT_GOMHC = """
import sys, transformers
for loader in (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM, transformers.LlamaModel):
    try:
        loader.from_pretrained(sys.argv[1])
    except ValueError as error:
        print('gomhc' in str(error), 'load it by gomhc.from_pretrained' in str(error))
assert 'gomhc' not in sys.modules
"""


def test_transformers_without_gomhc_refuses_the_checkpoint_by_every_class(tmp_path):
    with_streams().save_pretrained(tmp_path)
    assert run(WITHOUT_GOMHC, tmp_path) == "True False\nTrue True\nTrue True\n"


@pytest.mark.parametrize("family", FAMILIES)
def test_concrete_classes_refuse_a_model_with_streams(family, tmp_path):
    original = type(decoder(family))
    gomhc.upcycle(decoder(family)).save_pretrained(tmp_path)
    for options in ({}, {"config": transformers.AutoConfig.from_pretrained(tmp_path)}):
        with pytest.raises(ValueError, match=r"gomhc has changed this model: load it by gomhc\.from_pretrained"):
            original.from_pretrained(tmp_path, **options)


def test_concrete_classes_refuse_a_swapped_model(tmp_path):
    gomhc.swap_mixing(with_sinkhorn(), "go").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"gomhc has changed this model: load it by gomhc\.from_pretrained"):
        transformers.DeepseekV4ForCausalLM.from_pretrained(tmp_path)


# Loaded by the Auto classes
# ----------------------------------------------------------------------------------------------------------------------

BY_AUTO_CLASS = """
import sys, torch
{imports}
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
print(torch.load(sys.argv[2]).equal(model(torch.load(sys.argv[3])).logits))
"""


@torch.no_grad()
@pytest.mark.parametrize("imports", ["import gomhc, transformers", "import transformers, gomhc"])
def test_importing_gomhc_is_enough_for_the_auto_classes(imports, tmp_path):
    model = with_streams()
    model.save_pretrained(tmp_path)
    for value, name in ((model(tokens()).logits, "logits"), (tokens(), "tokens")):
        torch.save(value, tmp_path / name)
    code = BY_AUTO_CLASS.format(imports=imports)
    assert run(code, tmp_path, tmp_path / "logits", tmp_path / "tokens") == "True\n"


def test_a_type_that_nobody_knows_stays_unknown_to_the_auto_classes(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gomhc_nothing"}')
    with pytest.raises(ValueError, match=r"gomhc_nothing.*does not recognize"):
        transformers.AutoConfig.from_pretrained(tmp_path)


@torch.no_grad()
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_head_is_loaded_as_it_was(family, head, tmp_path):
    config = decoder(family).config
    auto = getattr(transformers, f"AutoModel{head}")
    if type(config) not in auto._model_mapping:
        pytest.skip("transformers has no such model")
    model = moved(gomhc.upcycle(auto.from_config(config).eval()))
    model.save_pretrained(tmp_path)
    for loaded in (auto.from_pretrained(tmp_path), gomhc.from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert torch.equal(loaded(tokens())[0], model(tokens())[0])


@torch.no_grad()
def test_a_decoder_with_streams_gets_a_classification_head(tmp_path):
    model = with_streams()
    model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForSequenceClassification
    classifier = auto.from_pretrained(tmp_path, num_labels=3).eval()
    assert classifier(tokens()).logits.shape == (2, 3)
    assert torch.equal(classifier.model(tokens())[0], model.model(tokens())[0])


@torch.no_grad()
def test_a_model_of_images_and_text_is_loaded_by_its_auto_class(tmp_path):
    model = gomhc.swap_mixing(of_images_and_text(), "go")
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path)
    text = tokens().clamp(min=9)  # the tokens before stand for images
    assert type(loaded) is type(model)
    assert torch.equal(loaded(text).logits, model(text).logits)
    with pytest.raises(ValueError, match=r"gomhc has changed this model: load it by gomhc\.from_pretrained"):
        transformers.Glm5NextForConditionalGeneration.from_pretrained(tmp_path)


# Nothing is half changed
# ----------------------------------------------------------------------------------------------------------------------


class OwnConfig(transformers.LlamaConfig):
    model_type = "own_llama"


class OwnForCausalLM(transformers.LlamaForCausalLM):
    config_class = OwnConfig


def own_model():
    return OwnForCausalLM(OwnConfig(**GROUPED)).eval()


@pytest.fixture(autouse=True)
def built_as_llamas(monkeypatch):
    """These types of models are built as llamas are."""
    from gomhc.integrations.architectures import ARCHITECTURES

    for model_type in ("own_llama", "diffllama"):
        if "llama" in ARCHITECTURES:
            monkeypatch.setitem(ARCHITECTURES, model_type, ARCHITECTURES["llama"])


def test_a_type_that_could_not_be_loaded_is_refused_before_anything_changes():
    model = own_model()
    names, layer = set(model.state_dict()), type(model.model.layers[0])
    with pytest.raises(ValueError, match=r"does not know the model type 'own_llama'.*AutoConfig\.register"):
        gomhc.upcycle(model)
    assert set(model.state_dict()) == names
    assert type(model.model.layers[0]) is layer
    assert type(model.config) is OwnConfig
    assert not hasattr(model.config, "gomhc")


@torch.no_grad()
def test_a_type_that_was_registered_is_loaded(monkeypatch, tmp_path):
    table = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    monkeypatch.setattr(table, "_extra_content", copy.copy(table._extra_content))
    transformers.AutoConfig.register("own_llama", OwnConfig)
    with pytest.raises(ValueError, match=r"does not know the class OwnForCausalLM.*AutoModel\.register"):
        gomhc.upcycle(own_model())
    transformers.AutoModelForCausalLM.register(OwnConfig, OwnForCausalLM)
    model = moved(gomhc.upcycle(own_model()))
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, OwnForCausalLM)
    assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)


def test_a_class_that_would_be_taken_for_another_is_refused():
    own = type("LlamaForCausalLM", (transformers.LlamaForCausalLM,), {"__module__": __name__})
    model = own(decoder().config)
    with pytest.raises(ValueError, match=r"another class under the name LlamaForCausalLM.*a name of its own"):
        gomhc.upcycle(model)
    assert type(model) is own


# The class and its instances
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loaded", [False, True])
def test_the_class_makes_models_with_streams(loaded, tmp_path):
    model = with_streams()
    if loaded:
        model.save_pretrained(tmp_path)
        model = gomhc.from_pretrained(tmp_path)
    for other in (type(model)(model.config), transformers.AutoModelForCausalLM.from_config(model.config)):
        assert type(other) is type(model)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            assert torch.equal(other.eval()(tokens()).logits, model(tokens()).logits)


def test_the_class_of_a_swapped_model_makes_such_models_and_goes_when_sinkhorn_is_back():
    model = gomhc.swap_mixing(with_sinkhorn(), "go")
    other = type(model)(model.config)
    assert set(other.state_dict()) == set(model.state_dict())
    assert coefficients(other)[0].mixing == coefficients(model)[0].mixing
    assert type(gomhc.swap_mixing(model, None)) is transformers.DeepseekV4ForCausalLM


def _logits(model, queue):
    with torch.no_grad():
        queue.put(model(tokens()).logits.tolist())


@torch.no_grad()
def test_a_spawned_process_gets_the_model():
    model, context = with_streams(), multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_logits, args=(model, queue))
    process.start()
    assert queue.get(timeout=240) == model(tokens()).logits.tolist()
    process.join()


@torch.no_grad()
def test_copies_and_pickles_compute_the_same():
    model = with_streams()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert torch.equal(other(tokens()).logits, model(tokens()).logits)
    for config in (copy.deepcopy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert config.to_dict() == model.config.to_dict()
        assert type(config) is type(model.config)
    assert pickle.loads(pickle.dumps(type(model))) is type(model)


@torch.no_grad()
def test_parameters_that_are_made_off_the_meta_device_do_not_matter(tmp_path):
    """DiffLlama draws some of its parameters in a way that ignores the meta device."""
    model = transformers.DiffLlamaForCausalLM(transformers.DiffLlamaConfig(**GROUPED)).eval()
    moved(gomhc.upcycle(model)).save_pretrained(tmp_path)
    loaded = gomhc.from_pretrained(tmp_path)
    assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)


# Dtypes
# ----------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("cast", ["bfloat16", "half", "to"])
def test_coefficients_stay_float32_when_the_model_is_cast(cast):
    model = with_streams()
    before = [parameter.clone() for part in coefficients(model) for parameter in part.parameters()]
    model = model.to(torch.bfloat16) if cast == "to" else getattr(model, cast)()
    after = [parameter for part in coefficients(model) for parameter in part.parameters()]
    assert model.lm_head.weight.dtype in (torch.bfloat16, torch.float16)
    assert all(torch.equal(one, other) for one, other in zip(after, before, strict=True))
    assert model(tokens()).logits.isfinite().all()
    assert dtypes(model.double()) == {torch.float64}
    assert dtypes(model.half()) == {torch.float32}
    assert dtypes(gomhc.swap_mixing(with_sinkhorn(), "go").bfloat16()) == {torch.float32}


def test_a_plain_connection_follows_a_cast_as_every_module_of_torch():
    connection = gomhc.HyperConnection(torch.nn.Linear(8, 8), 8).bfloat16()
    assert {parameter.dtype for parameter in connection.parameters()} == {torch.bfloat16}


# Adapters
# ----------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("task", ["CAUSAL_LM", None])
def test_peft_finds_the_model_of_an_adapter(task, tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft")
    with_streams().save_pretrained(tmp_path / "base")
    base = gomhc.from_pretrained(tmp_path / "base")
    options = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["coefficients"], r=2, task_type=task)
    model = peft.get_peft_model(base, options).eval()
    moved(model)
    model.save_pretrained(tmp_path / "adapter")
    load = peft.AutoPeftModelForCausalLM.from_pretrained
    if task is None:  # then peft imports the class by its name, and asks first
        with pytest.raises(ValueError, match=r"import_allowlist=\['gomhc"):
            load(tmp_path / "adapter")
    loaded = load(tmp_path / "adapter", **({} if task else {"import_allowlist": ["gomhc"]})).eval()
    assert torch.equal(loaded(input_ids=tokens()).logits, model(input_ids=tokens()).logits)


@torch.no_grad()
def test_an_adapter_of_a_model_that_was_not_saved_does_not_lead_to_the_plain_model(tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft")
    decoder().save_pretrained(tmp_path / "plain")
    base = gomhc.upcycle(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain"))
    options = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["coefficients"], task_type="CAUSAL_LM")
    with pytest.warns(UserWarning, match="Could not find a config file"):
        peft.get_peft_model(base, options).save_pretrained(tmp_path / "adapter")
    with pytest.raises(Exception, match="changed by gomhc, and not saved since"):
        peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")


# Pipelines
# ----------------------------------------------------------------------------------------------------------------------


def test_a_pipeline_generates_from_the_folder(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["[PAD]", "[BOS]", "[EOS]", *map(str, range(3, 61))])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[EOS]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]")
    model = with_streams()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    generate = transformers.pipeline("text-generation", model=str(tmp_path), return_full_text=False)
    expected = model.generate(torch.tensor([[7, 8, 9]]), **options)[0, 3:]
    assert generate("7 8 9", **options)[0]["generated_text"] == tokenizer.decode(expected)
