"""Upcycling: add several residual streams to a pretrained model of transformers, which computes the same at first.

Both starts that it takes give the outputs of the plain model; see `reset_parameters` of `gomhc.layers.Coefficients`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, TypeVar, get_args

import torch
from transformers import PreTrainedModel

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.description import describe, from_description
from gomhc.checks import require_choice
from gomhc.integrations.architectures import ARCHITECTURES
from gomhc.integrations.checkpoints import mark, original_type, require_loadable
from gomhc.integrations.detection import Stack, as_plain_data, find_stacks, from_plain_data
from gomhc.integrations.example_inputs import example_inputs as make_example_inputs
from gomhc.integrations.in_float32 import place_beside
from gomhc.integrations.stream_layer import LayerPlan, StreamLayer, carry_streams
from gomhc.layers import DEFAULT_START, HyperConnection, TwinStart

Model = TypeVar("Model", bound=PreTrainedModel)


def upcycle(
    model: Model,
    num_streams: int | None = None,
    mixing: Parametrization | str = "go",
    *,
    dynamic: bool = True,
    start: TwinStart = DEFAULT_START,
    copy: bool = False,
    example_inputs: Mapping[str, Any] | None = None,
    generator: torch.Generator | None = None,
) -> Model:
    """Add several residual streams to a Hugging Face transformer; its outputs are unchanged at first.

    Modules and weights keep their names. Each layer gets a new module, `connections`, which is float32 whatever the
    dtype of the model. `save_pretrained` writes everything, and `gomhc.from_pretrained` loads it.
    `output_hidden_states` returns the embeddings (batch, time, c), then the streams (batch, time, num_streams, c) after
    each layer except the last, then the last normed state (batch, time, c), as before.

    Args:
        model: a model of transformers. The branches of its layers are found in their code and checked; a model whose
            outputs would change is refused. `gomhc.register_architecture` declares branches that cannot be found.
        num_streams: number of streams (d); by default that of `mixing`, or 4 if `mixing` is text.
        mixing: how the streams are mixed, a value or text, as for :class:`gomhc.HyperConnection`.
        dynamic: whether coefficients are computed for each token; otherwise all tokens share the same ones.
        start: initial values of the coefficients, ``"mean-stream"`` or ``"equal-streams"``; the other starts of
            :class:`gomhc.HyperConnection` would change what the model computes.
        copy: whether to change a copy of the model instead of the model itself.
        example_inputs: arguments for one call of the model, with which its layers are found and checked; by default
            random tokens. Layers that the call does not reach stay plain: pass images to give a vision tower streams.
        generator: random generator for the initial mixing matrices.

    Returns:
        The changed model.

    Example::

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=16, n_embd=16, n_layer=1, n_head=2))
        >>> model = gomhc.upcycle(model, num_streams=4, mixing="go")
    """
    chosen = as_mixing(mixing, num_streams)
    require_choice("start", start, get_args(TwinStart))
    _require_plain(model)
    require_loadable(model)
    if copy:
        model = deepcopy(model)
    inputs = make_example_inputs(model) if example_inputs is None else example_inputs
    stacks = find_stacks(model, inputs, ARCHITECTURES.get(original_type(model.config)))
    _install(model, stacks, chosen, dynamic=dynamic, start=start, generator=generator)
    description = {
        "parametrization": describe(chosen),
        "dynamic": dynamic,
        "start": start,
        "stacks": list(map(as_plain_data, stacks)),
    }
    mark(model, "upcycle", description)
    return model


def rebuild(model: PreTrainedModel, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    lists = dict(model.base_model.named_modules())
    stacks = [from_plain_data(stored) for stored in description["stacks"]]
    stacks = [stack for stack in stacks if stack.path in lists]  # an encoder alone may be loaded from its whole model
    if not stacks:
        raise ValueError(f"{type(model).__name__} has none of the layers that have streams in this checkpoint")
    _install(
        model,
        stacks,
        from_description(description["parametrization"]),
        dynamic=description["dynamic"],
        start=description.get("start", "mean-stream"),  # the only one that checkpoints without this entry had
    )


def _install(
    model: PreTrainedModel,
    stacks: Sequence[Stack],
    mixing: Parametrization,
    *,
    dynamic: bool,
    start: TwinStart,
    generator: torch.Generator | None = None,
) -> None:
    for stack in stacks:
        layers: Any = model.base_model.get_submodule(stack.path)
        if len(layers) != len(stack.branches):
            raise ValueError(f"{stack.path} has {len(layers)} layers, and had {len(stack.branches)} with streams")
        numbers = count()
        for index, (layer, branches) in enumerate(zip(layers, stack.branches, strict=True)):
            connections = {
                name: HyperConnection(
                    None,
                    stack.channels,
                    mixing,
                    dynamic=dynamic,
                    start=start,
                    layer_index=next(numbers),
                    generator=generator,
                    **place_beside(layer),
                )
                for name in branches.places.values()
            }
            plan = LayerPlan(
                branches=branches,
                num_streams=mixing.num_streams,
                is_first=index == 0,
                is_last=index == len(layers) - 1,
            )
            carry_streams(layer, plan, connections)


def _require_plain(model: PreTrainedModel) -> None:
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"expected a model of transformers (PreTrainedModel), got {type(model).__name__}; "
            f"upcycle first, and then wrap it (torch.compile, peft, DistributedDataParallel)"
        )
    for layer in model.modules():
        if isinstance(layer, StreamLayer):
            raise ValueError("this model already has streams; upcycle a plain model")
        if "HyperConnection" in type(layer).__name__:
            raise ValueError(
                f"{type(model).__name__} has hyper-connections of its own; gomhc.swap_mixing gives them another mixing"
            )
        if "forward" in vars(layer):
            raise ValueError(
                "another library has replaced the forward of a layer, as accelerate does for device_map; call upcycle "
                "before that"
            )
