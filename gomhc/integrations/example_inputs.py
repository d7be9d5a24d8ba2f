"""Inputs on which a model of transformers can be tried, made from its configuration and its signature."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel

BATCH, TIME = 2, 7


def example_inputs(model: PreTrainedModel) -> dict[str, Any]:
    """Random tokens, pixels or sound: what the model's forward takes first, and what a decoder takes beside it."""
    arguments = inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(0)
    inputs: dict[str, Any] = {}
    for name in _main_arguments(model, arguments):
        inputs[name] = _MAKERS[name](model, generator)
    return {name: value.to(model.device) for name, value in inputs.items()}


def _main_arguments(model: PreTrainedModel, arguments: Any) -> list[str]:
    main = model.main_input_name if model.main_input_name in arguments else None
    main = main or next((name for name in _MAKERS if name in arguments), None)
    if main not in _MAKERS:
        raise ValueError(
            f"{type(model).__name__} takes {', '.join(arguments)}, and gomhc cannot make an example of that; "
            f"give one: gomhc.upcycle(model, example_inputs={{...}})"
        )
    chosen = [main]
    if "decoder_input_ids" in arguments and main != "decoder_input_ids":
        chosen.append("decoder_input_ids")
    if "pixel_values" in arguments and not main.startswith("pixel") and _is_contrastive(model):
        chosen.append("pixel_values")
    return chosen


def _is_contrastive(model: PreTrainedModel) -> bool:
    """Whether text alone is not enough, as for CLIP."""
    return hasattr(model, "logit_scale")


def _tokens(model: PreTrainedModel, generator: torch.Generator) -> torch.Tensor:
    size = model.config.get_text_config().vocab_size
    special = _special_tokens(model.config.to_dict())
    usual = torch.tensor([token for token in range(size) if token not in special])
    return usual[torch.randint(len(usual), (BATCH, TIME), generator=generator)]


def _special_tokens(config: dict[Any, Any]) -> set[int]:
    """Tokens that stand for something else: an image, the end, padding."""
    found: set[int] = set()
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _special_tokens(value)
        elif "token" in str(name) and not name.startswith("num"):
            found |= {token for token in (value if isinstance(value, list) else [value]) if isinstance(token, int)}
    return found


def _pixels(model: PreTrainedModel, generator: torch.Generator) -> torch.Tensor:
    config = _first_with(model.config, "image_size")
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return torch.rand(BATCH, getattr(config, "num_channels", 3), height, width, generator=generator)


def _spectrogram(model: PreTrainedModel, generator: torch.Generator) -> torch.Tensor:
    config = _first_with(model.config, "num_mel_bins")
    time = 2 * getattr(config, "max_source_positions", 50)
    return torch.rand(BATCH, config.num_mel_bins, time, generator=generator)


def _sound(model: PreTrainedModel, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(BATCH, 4000, generator=generator)


def _first_with(config: Any, name: str) -> Any:
    """The configuration, or the first one inside, that says this."""
    for part in (config, *(getattr(config, key) for key in getattr(config, "sub_configs", {}))):
        if getattr(part, name, None) is not None:
            return part
    raise ValueError(
        f"{type(config).__name__} has no {name}; give an example: gomhc.upcycle(model, example_inputs=...)"
    )


_MAKERS = {
    "input_ids": _tokens,
    "pixel_values": _pixels,
    "input_features": _spectrogram,
    "input_values": _sound,
    "decoder_input_ids": _tokens,
}
