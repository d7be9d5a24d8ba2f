"""Saving and loading of models of transformers that gomhc has changed.

`config.json` says what was done (`gomhc`), under a model type of its own (`gomhc_llama` for a llama), and names no file
of weights but a notice. So transformers without gomhc refuses the checkpoint, by its Auto classes (they do not know the
type) and by its concrete ones (they look for the file), instead of leaving the streams out. The weights are as
`save_pretrained` writes them, in safetensors.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import output_capturing

from gomhc.integrations.auto_types import PREFIX
from gomhc.integrations.made_class import Made
from gomhc.version import __version__

KINDS = {"upcycle": "upcycle", "swap_mixing": "swapping"}
"""What can be done to a model -> the module beside this one whose `rebuild(model, description)` does it again."""
NOTICE = (
    "gomhc has changed this model: load it by gomhc.from_pretrained, or by an Auto class of transformers after "
    "`import gomhc`"
)
"""Where a file name is expected, so that the error of transformers' concrete classes shows it."""
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
"""Options of `from_pretrained` that say where the files are."""
NOT_SAVED = "(changed by gomhc, and not saved since)"
"""`name_or_path` of such a model. Its former one would lead peft from an adapter to the model without the change."""


_a_changed_model_loads = ContextVar("_a_changed_model_loads", default=False)


class ChangedConfig(Made):
    """In front of the class of a configuration: that of a model which gomhc has changed."""

    @property
    def transformers_weights(self) -> str | None:
        """Where transformers expects the name of the file: the notice, for whoever is not a `ChangedModel`."""
        return None if _a_changed_model_loads.get() else NOTICE

    def to_diff_dict(self) -> dict[str, Any]:  # what `config.json` gets
        return {**super().to_diff_dict(), "transformers_weights": NOTICE}  # type: ignore[misc]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        stored = {name: value for name, value in config_dict.items() if name != "transformers_weights"}
        return super().from_dict(stored, **options)  # type: ignore[misc]


class ChangedModel(Made):
    """In front of the class of a model: when it is made, it changes itself as its configuration says."""

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)  # type: ignore[call-arg]  # the original's
        model: Any = self
        if any(isinstance(part, ChangedModel) for part in model.modules() if part is not self):
            return  # heads that make their body by AutoModel have one that has done it
        import_module(f"{__package__}.{KINDS[config.gomhc['kind']]}").rebuild(self, config.gomhc)

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        token = _a_changed_model_loads.set(True)
        try:
            return super().from_pretrained(*args, **options)  # type: ignore[misc]
        finally:
            _a_changed_model_loads.reset(token)


def require_loadable(model: PreTrainedModel) -> None:
    """Raise where `from_pretrained` could not find the classes again; before anything of the model is changed."""
    original, config_class = _class_before(model), _original_config_class(original_type(model.config))
    if _original_class(original.__name__, config_class) is not original:
        raise ValueError(
            f"transformers knows another class under the name {original.__name__}, so a saved model would be loaded as "
            f"that; give {original.__module__}.{original.__qualname__} a name of its own"
        )


def mark(model: PreTrainedModel, kind: str, description: dict[str, Any]) -> None:
    """Write into the configuration what was done to the model, so that `from_pretrained` can do it again."""
    config_class = changed_config_class(original_type(model.config))
    model.__class__, model.config.__class__ = _changed_model_class(_class_before(model), config_class), config_class
    model.config.gomhc = {"kind": kind, "version": __version__, **description}
    model.name_or_path = NOT_SAVED


def unmark(model: PreTrainedModel) -> None:
    """Remove the mark: the model is again as transformers knows it."""
    model.__class__, model.config.__class__ = _class_before(model), _original_config_class(original_type(model.config))
    del model.config.gomhc
    model.name_or_path = model.config.name_or_path


def _class_before(model: PreTrainedModel) -> Any:
    """The class of the model before gomhc changed it."""
    return type(model).made_by[1][0] if isinstance(model, ChangedModel) else type(model)


def original_type(config: PreTrainedConfig) -> str:
    """The type of the model before gomhc changed it."""
    return config.model_type.removeprefix(PREFIX)


def from_pretrained(path: str | Path, **options: Any) -> PreTrainedModel:
    """Load a model that `gomhc.upcycle` or `gomhc.swap_mixing` has changed and `save_pretrained` has written.

    Args:
        path: the folder, or the name of a repository on the Hugging Face Hub.
        options: options for `from_pretrained` of the model's class (`dtype`, `device_map`, ...).

    Example::

        >>> from tempfile import TemporaryDirectory
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2))
        >>> with TemporaryDirectory() as folder:
        ...     gomhc.upcycle(model).save_pretrained(folder)
        ...     loaded = gomhc.from_pretrained(folder)
    """
    where = {name: options[name] for name in HUB_OPTIONS if name in options}
    stored, _ = PreTrainedConfig.get_config_dict(path, **where)
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
    model_class, _ = _classes(stored["architectures"][0], stored["model_type"].removeprefix(PREFIX))
    model, loading = model_class.from_pretrained(path, output_loading_info=True, **options)
    if loading["missing_keys"]:
        raise ValueError(
            f"{path} lacks weights of this model: {', '.join(sorted(loading['missing_keys'])[:3])}, ...; "
            f"save the model again with save_pretrained"
        )
    return model


# Classes of changed models
# ----------------------------------------------------------------------------------------------------------------------


@cache
def changed_config_class(model_type: str) -> Any:
    """The class of the configuration of a changed model of this type; the Auto classes know it from now on."""
    original = _original_config_class(model_type)
    values = {
        "model_type": PREFIX + model_type,
        "__module__": __name__,
        "made_by": (changed_config_class, (model_type,)),
    }
    config_class: Any = type(f"Gomhc{original.__name__}", (ChangedConfig, original), values)
    AutoConfig.register(config_class.model_type, config_class)
    # Some models have other names for their weights in files; they keep them.
    renamings = get_checkpoint_conversion_mapping(model_type) or []
    register_checkpoint_conversion_mapping(config_class.model_type, renamings)
    for auto, known in _known_to_auto_classes(original):
        changed = tuple(_changed_model_class(one, config_class) for one in known)
        auto.register(config_class, changed if len(changed) > 1 else changed[0])
    return config_class


def _classes(name: str, model_type: str) -> tuple[Any, Any]:
    """The classes of a changed model and of its configuration."""
    config_class = changed_config_class(model_type)
    return _changed_model_class(_original_class(name, _original_config_class(model_type)), config_class), config_class


@cache
def _changed_model_class(original: Any, config_class: Any) -> Any:
    """The original with `ChangedModel` in front, under the original's name, which `config.json` has."""
    values = {
        "__module__": __name__,
        "config_class": config_class,
        "_keep_in_fp32_modules_strict": [*(original._keep_in_fp32_modules_strict or ()), "coefficients"],
        "made_by": (_changed_class_of, (original, config_class.model_type.removeprefix(PREFIX))),
        # Else transformers leaves buffers that are not in files as they are in memory (FalconH1's multipliers).
        "is_custom_code": original.is_custom_code,
    }
    changed: Any = type(original.__name__, (ChangedModel, original), values)
    # transformers writes this when it makes a model; ours may be a model that was made before, or comes from a pickle.
    output_capturing._CAN_RECORD_REGISTRY[str(changed)] = original._can_record_outputs
    return changed


def _changed_class_of(original: Any, model_type: str) -> Any:
    return _changed_model_class(original, changed_config_class(model_type))


def _original_config_class(model_type: str) -> Any:
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"transformers does not know the model type {model_type!r}, so a saved model could not be loaded; "
            f"register it with AutoConfig.register({model_type!r}, ...) and AutoModel.register(...)"
        )
    return CONFIG_MAPPING[model_type]


def _original_class(name: str, config_class: Any) -> Any:
    """The class of transformers, or one that was registered for this configuration, that has this name."""
    registered = {one.__name__: one for _, known in _known_to_auto_classes(config_class) for one in known}
    if name not in registered and not hasattr(transformers, name):
        raise ValueError(
            f"transformers does not know the class {name}, so a saved model could not be loaded; "
            f"register it with AutoModel.register({config_class.__name__}, {name}, exist_ok=True) or another Auto class"
        )
    return registered.get(name) or getattr(transformers, name)


def _known_to_auto_classes(config_class: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each Auto class that has models for this configuration, and these models."""
    classes = [one for one in vars(modeling_auto).values() if isinstance(one, type)]
    autos: list[Any] = [one for one in classes if issubclass(one, _BaseAutoModelClass)]
    known = [(auto, auto._model_mapping.get(config_class, None)) for auto in autos if auto._model_mapping is not None]
    return [(auto, one if isinstance(one, tuple) else (one,)) for auto, one in known if one is not None]


def __getattr__(name: str) -> Any:
    """The class of a changed model by its name, for whoever has stored it so, as peft does."""
    original = getattr(transformers, name, None)
    if isinstance(original, type) and issubclass(original, PreTrainedModel) and original.config_class is not None:
        return _classes(name, original.config_class.model_type)[0]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
