"""Saving and loading of models of transformers that gomhc has changed.

`config.json` says what was done (`gomhc`), under a model type of its own (`gomhc_llama` for a llama). So transformers
alone refuses the checkpoint, instead of leaving the streams out without a word. The weights are as `save_pretrained`
writes them, in safetensors.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from gomhc.integrations.made_class import Made
from gomhc.version import __version__

PREFIX = "gomhc_"
AUTO_CLASSES: tuple[Any, ...] = (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
KINDS = {"upcycle": "upcycle", "swap_mixing": "deepseek_v4"}
"""What can be done to a model -> the module beside this one whose `rebuild(model, description)` does it again."""


def mark(model: PreTrainedModel, kind: str, description: dict[str, Any]) -> None:
    """Write into the configuration what was done to the model, so that `from_pretrained` can do it again."""
    model.config.__class__ = _config_class(original_type(model.config))
    model.config.gomhc = {"kind": kind, "version": __version__, **description}


def unmark(model: PreTrainedModel) -> None:
    """Remove the mark: the model is again as transformers knows it."""
    model.config.__class__ = CONFIG_MAPPING[original_type(model.config)]
    del model.config.gomhc


def original_type(config: PreTrainedConfig) -> str:
    """The type of the model before gomhc changed it."""
    return config.model_type.removeprefix(PREFIX)


def from_pretrained(path: str | Path, **options: Any) -> PreTrainedModel:
    """Load a model that `gomhc.upcycle` or `gomhc.swap_mixing` has changed and `save_pretrained` has written.

    Args:
        path: the folder, or the name of a repository on the Hugging Face Hub.
        options: go to the `from_pretrained` of the model's class (`dtype`, `device_map`, ...).

    Example::

        >>> from tempfile import TemporaryDirectory
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2))
        >>> with TemporaryDirectory() as folder:
        ...     gomhc.upcycle(model).save_pretrained(folder)
        ...     loaded = gomhc.from_pretrained(folder)
    """
    stored, _ = PreTrainedConfig.get_config_dict(path)
    if "gomhc" not in stored:
        raise ValueError(
            f"{path} holds a {stored.get('model_type')} that gomhc has not changed; "
            f"load it with transformers, and then call gomhc.upcycle or gomhc.swap_mixing"
        )
    if stored["gomhc"].get("kind") not in KINDS:
        raise ValueError(
            f"{path} was changed in a way that gomhc {__version__} does not know, by gomhc "
            f"{stored['gomhc'].get('version')}: expected one of {', '.join(KINDS)}, got {stored['gomhc'].get('kind')!r}"
        )
    config_class = _config_class(stored["model_type"].removeprefix(PREFIX))
    config = config_class.from_pretrained(path)
    model_class = _model_class(getattr(transformers, stored["architectures"][0]), config_class)
    model, loading = model_class.from_pretrained(path, config=config, output_loading_info=True, **options)
    if loading["missing_keys"]:
        raise ValueError(f"{path} lacks weights of this model: {', '.join(sorted(loading['missing_keys'])[:3])}, ...")
    return model


@cache
def _config_class(model_type: str) -> Any:
    """The configuration of a changed model; the Auto classes of transformers know it from now on."""
    original = CONFIG_MAPPING[model_type]
    values = {"model_type": PREFIX + model_type, "__module__": __name__, "made_by": (_config_class, (model_type,))}
    config_class: Any = type(f"Gomhc{original.__name__}", (Made, original), values)
    AutoConfig.register(config_class.model_type, config_class)
    # Some models have other names for their weights in files; they keep them.
    renamings = get_checkpoint_conversion_mapping(model_type) or []
    register_checkpoint_conversion_mapping(config_class.model_type, renamings)
    for auto in AUTO_CLASSES:
        known = auto._model_mapping.get(original, None)
        if known is not None:
            auto.register(config_class, _model_class(known, config_class))
    return config_class


@cache
def _model_class(original: Any, config_class: Any) -> Any:
    """The class that changes itself as its configuration says when it is made; under the original's name."""

    def initialize(self: Any, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        original.__init__(self, config, *args, **kwargs)
        import_module(f"{__package__}.{KINDS[config.gomhc['kind']]}").rebuild(self, config.gomhc)

    values = {
        "__init__": initialize,
        "__module__": __name__,
        "config_class": config_class,
        "_keep_in_fp32_modules_strict": [*(original._keep_in_fp32_modules_strict or ()), "coefficients"],
        "made_by": (_model_class_of, (original, config_class.model_type.removeprefix(PREFIX))),
    }
    return type(original.__name__, (Made, original), values)


def _model_class_of(original: Any, model_type: str) -> Any:
    return _model_class(original, _config_class(model_type))
