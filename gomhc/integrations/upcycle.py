"""How does a pretrained decoder of transformers become one of several residual streams that computes the same?

With the start `mean-stream` (see `gomhc.layers.Coefficients`) the mean over streams obeys the plain residual recursion.
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
from gomhc.integrations.checkpoints import mark, original_type

Model = TypeVar("Model", bound=PreTrainedModel)


def upcycle(
    model: Model,
    num_streams: int = 4,
    parametrization: Parametrization | str = "go",
    *,
    dynamic: bool = True,
    copy: bool = False,
    generator: torch.Generator | None = None,
) -> Model:
    """Give a decoder of transformers `num_streams` residual streams; at first it computes what it did before.

        model = gomhc.upcycle(AutoModelForCausalLM.from_pretrained(...), num_streams=4, parametrization="go")

    `parametrization` is what mixes the streams: a value, or a key of `gomhc.PARAMETRIZATIONS`, with options behind a
    colon (`go:expressivity=3`). With `dynamic` the tokens steer the coefficients, else all tokens have the same. The
    model is changed in place, unless `copy` asks for a changed copy; `generator` draws the first mixing matrices.
    Coefficients are float32, whatever the model is.

    Names of modules and weights stay, and `connections` is new in each layer. `save_pretrained` writes all of it, and
    `gomhc.from_pretrained` reads it. `output_hidden_states` gives the embeddings (batch, time, c), then the streams
    (batch, time, num_streams, c) after each layer but the last, then the last normed state (batch, time, c), as ever.
    """
    chosen = as_mixing(parametrization, num_streams)
    layers, architecture = _layers(model)
    for layer in layers:
        architecture.check(layer)
    if copy:
        model = deepcopy(model)
        layers, _ = _layers(model)
    stream_layer.install(layers, architecture, model.config, chosen, dynamic=dynamic, generator=generator)
    mark(model, "upcycle", {"parametrization": describe(chosen), "dynamic": dynamic})
    return model


def rebuild(model: PreTrainedModel, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    layers, architecture = _layers(model)
    parametrization = from_description(description["parametrization"])
    stream_layer.install(layers, architecture, model.config, parametrization, dynamic=description["dynamic"])


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
