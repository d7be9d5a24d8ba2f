"""Upcycling: a pretrained decoder of transformers gets several residual streams, and computes the same at first.

The default start makes a network its plain twin; see `reset_parameters` of `gomhc.layers.Coefficients`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.description import describe, from_description
from gomhc.integrations import stream_layer
from gomhc.integrations.architectures import Architecture, architecture_of
from gomhc.integrations.checkpoints import mark, original_type, require_loadable

Model = TypeVar("Model", bound=PreTrainedModel)


def upcycle(
    model: Model,
    num_streams: int | None = None,
    mixing: Parametrization | str = "go",
    *,
    dynamic: bool = True,
    copy: bool = False,
    generator: torch.Generator | None = None,
) -> Model:
    """Give a decoder of transformers several residual streams; at first it computes what it did before.

    Names of modules and weights stay, and `connections` is new in each layer, in float32 whatever the model is.
    `save_pretrained` writes all of it, and `gomhc.from_pretrained` reads it. `output_hidden_states` gives the
    embeddings (batch, time, c), then the streams (batch, time, num_streams, c) after each layer but the last, then the
    last normed state (batch, time, c), as ever.

    Args:
        model: a decoder of a family that `gomhc.register_architecture` knows.
        num_streams: how many streams; by default those of `mixing`, or 4 where it is text.
        mixing: what mixes the streams, a value or text, as for :class:`gomhc.HyperConnection`.
        dynamic: whether each token steers its own coefficients, or all tokens share them.
        copy: whether to change a copy of the model instead of the model itself.
        generator: draws the first mixing matrices.

    Returns:
        The changed model.

    Example::

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2))
        >>> model = gomhc.upcycle(model, num_streams=4, mixing="go")
    """
    chosen = as_mixing(mixing, num_streams)
    layers, architecture = _layers(model)
    for layer in layers:
        architecture.check(layer)
    require_loadable(model)
    if copy:
        model = deepcopy(model)
        layers, _ = _layers(model)
    stream_layer.install(layers, architecture, model.config, chosen, dynamic=dynamic, generator=generator)
    mark(model, "upcycle", {"parametrization": describe(chosen), "dynamic": dynamic})
    return model


def rebuild(model: PreTrainedModel, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    layers, architecture = _layers(model)
    mixing = from_description(description["parametrization"])
    stream_layer.install(layers, architecture, model.config, mixing, dynamic=description["dynamic"])


def _layers(model: PreTrainedModel) -> tuple[nn.ModuleList, Architecture]:
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"expected a model of transformers (PreTrainedModel), got {type(model).__name__}; "
            f"upcycle first, and then wrap it (torch.compile, peft, DistributedDataParallel)"
        )
    architecture = architecture_of(original_type(model.config))
    layers = model.base_model.get_submodule(architecture.layers)
    assert isinstance(layers, nn.ModuleList)
    for layer in layers:
        if isinstance(layer, stream_layer.StreamLayer):
            raise ValueError("this model has streams already; upcycle a plain one")
        if "forward" in vars(layer):
            raise ValueError(
                "another library has replaced the forward of a layer (accelerate does for device_map); upcycle before"
            )
    return layers, architecture
