"""Decoder layers of transformers that carry several residual streams: their forward is replaced, their modules stay.

The layer keeps its place, its weights and their names. The first layer of a model makes streams of tokens, and the last
makes tokens of streams, so that nothing else of the model sees them. d = num_streams, c = channels
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization
from gomhc.integrations.architectures import Architecture, Chain
from gomhc.integrations.in_float32 import Connections, place_beside
from gomhc.integrations.made_class import Made
from gomhc.layers import HyperConnection, expand, readout


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The branches of a layer with streams, and its place in the model."""

    branches: dict[str, tuple[Chain, ...]]
    """For each connection the chains of modules whose sum is its branch."""
    attention: str
    """The module that gets the layer's further arguments."""
    argument_names: tuple[str, ...]
    """Arguments of the original forward, behind the hidden states."""
    not_for_attention: frozenset[str]
    """Arguments that are not passed on to the attention."""
    num_streams: int
    is_first: bool
    is_last: bool


class StreamLayer(nn.Module):
    """The forward of a layer with streams (batch, time, d, c), put in front of the layer's own class."""

    connections: nn.ModuleDict
    plan: LayerPlan

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        context = {**dict(zip(self.plan.argument_names, args, strict=False)), **kwargs}
        context = {name: value for name, value in context.items() if name not in self.plan.not_for_attention}
        streams = expand(hidden_states, self.plan.num_streams) if self.plan.is_first else hidden_states
        for name, chains in self.plan.branches.items():
            connection: Any = self.connections[name]
            branch_input, state = connection.read(streams)
            output = self._run(chains[0], branch_input, context)
            for chain in chains[1:]:
                output = output + self._run(chain, branch_input, context)
            streams = connection.write(state, output)
        return readout(streams) if self.plan.is_last else streams

    def _run(self, chain: Chain, x: Tensor, context: dict[str, Any]) -> Tensor:
        for name in chain:
            module = getattr(self, name)
            output = module(x, **context) if name == self.plan.attention else module(x)
            x = output[0] if isinstance(output, tuple) else output  # attention weights stand behind
        return x


def install(
    layers: nn.ModuleList,
    architecture: Architecture,
    config: Any,
    mixing: Parametrization,
    *,
    dynamic: bool,
    generator: torch.Generator | None = None,
) -> None:
    """Make these layers carry streams."""
    branches = architecture.connections(config)
    for index, layer in enumerate(layers):
        plan = LayerPlan(
            branches=branches,
            attention=architecture.attention,
            argument_names=tuple(inspect.signature(type(layer).forward).parameters)[2:],
            not_for_attention=frozenset(architecture.not_for_attention),
            num_streams=mixing.num_streams,
            is_first=index == 0,
            is_last=index == len(layers) - 1,
        )
        connections = {
            name: HyperConnection(
                None,
                config.hidden_size,
                mixing,
                dynamic=dynamic,
                layer_index=index * len(branches) + place,
                generator=generator,
                **place_beside(layer),
            )
            for place, name in enumerate(branches)
        }
        layer.connections = Connections(connections).train(layer.training)
        layer.plan = plan  # type: ignore[assignment]  # a module may hold any value
        original: Any = type(layer)
        layer.__class__ = _with_streams(original)


@cache
def _with_streams(layer_class: Any) -> Any:
    """The layer's class with our forward; under its own name, by which transformers places and reports layers."""
    values = {"__module__": __name__, "made_by": (_with_streams, (layer_class,))}
    return type(layer_class.__name__, (Made, StreamLayer, layer_class), values)
