"""Layers of transformers that carry several residual streams: their forward is replaced, their modules stay.

The layer keeps its place, its weights and their names. The first layer of a model makes streams of tokens, and the last
makes tokens of streams, so that nothing else of the model sees them. d = num_streams, c = channels
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor, nn

from gomhc.integrations.architectures import Chains
from gomhc.integrations.hidden_streams import Handlers, HiddenStreams, LayerCall, NotResidualError, Point
from gomhc.integrations.in_float32 import Connections
from gomhc.integrations.layer_code import rewritten
from gomhc.integrations.made_class import Made
from gomhc.layers import expand, readout


@dataclass(frozen=True, kw_only=True)
class Branches:
    """Where a layer reads its hidden states, each time for a connection."""

    places: Mapping[str, str]
    """Each place in the layer's code that reads them, and the name of its connection."""
    depth: int = 0
    """Into how many levels of submodules the hidden states are followed."""
    norms_are_passed: bool = False
    """Whether norms stand on the path of the residual (post-norm), not before branches."""
    chains: Chains | None = None
    """What a person has said that the layer computes, instead of its code."""


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The branches of a layer with streams, and its place in the model."""

    branches: Branches | None
    """None while they are being found."""
    num_streams: int
    is_first: bool
    is_last: bool


class StreamLayer(nn.Module):
    """The forward of a layer with streams (*batch, d, c), put in front of the layer's own class."""

    connections: nn.ModuleDict
    plan: LayerPlan
    original_class: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden_states, args, kwargs = split_arguments(self.original_class, args, kwargs)
        plan = self.plan
        streams = expand(hidden_states, plan.num_streams) if plan.is_first else hidden_states
        branches = plan.branches
        assert branches is not None
        run = LayerCall(self.connections, branches.places, branches.depth, branches.norms_are_passed)
        return finished(compute(self, branches.chains, run, streams, args, kwargs), as_tokens=plan.is_last)


def split_arguments(layer_class: Any, args: Any, kwargs: Any) -> tuple[Tensor, Any, Any]:
    """The hidden states, and the other arguments."""
    if args:
        return args[0], args[1:], kwargs
    name = argument_names(layer_class)[0]
    return kwargs[name], (), {key: value for key, value in kwargs.items() if key != name}


def compute(layer: Any, chains: Chains | None, run: LayerCall, streams: Tensor, args: Any, kwargs: Any) -> Any:
    """What the layer returns, with these streams in place of its hidden states."""
    hidden_states = HiddenStreams(Point(run, streams))
    if chains is None:
        return layer.code(layer, hidden_states, *args, **kwargs)
    context = {**dict(zip(argument_names(layer.original_class)[1:], args, strict=False)), **kwargs}
    return chains(layer, hidden_states, context)


def finished(output: Any, *, as_tokens: bool) -> Any:
    """What a layer returns, with all branches written to the streams; as one stream behind the last layer."""
    if isinstance(output, HiddenStreams):
        streams = output.finished()
        return readout(streams) if as_tokens else streams
    if isinstance(output, tuple | list) and any(isinstance(value, HiddenStreams) for value in output):
        return type(output)(
            finished(value, as_tokens=as_tokens) if isinstance(value, HiddenStreams) else value for value in output
        )
    raise NotResidualError("what it returns is not its hidden states with branches added")


def carry_streams(layer: Any, plan: LayerPlan, connections: Mapping[str, nn.Module]) -> None:
    """Make this layer carry streams."""
    layer.connections = Connections(connections).train(layer.training)
    layer.plan = plan
    original: Any = type(layer)
    layer.__class__ = with_streams(original)


def carry_tokens(layer: Any) -> None:
    """Make this layer again what it was."""
    del layer.connections, layer.plan
    layer.__class__ = layer.original_class


@cache
def with_streams(layer_class: Any) -> Any:
    """The layer's class with our forward; under its own name, by which transformers places and reports layers."""
    values = {
        "__module__": __name__,
        "made_by": (with_streams, (layer_class,)),
        "original_class": layer_class,
        "code": staticmethod(rewritten(layer_class.forward, Handlers)),
    }
    return type(layer_class.__name__, (Made, StreamLayer, layer_class), values)


@cache
def argument_names(layer_class: Any) -> tuple[str, ...]:
    """The arguments of a layer's forward, hidden states first."""
    return tuple(inspect.signature(layer_class.forward).parameters)[1:]
