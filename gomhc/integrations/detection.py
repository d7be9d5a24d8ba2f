"""Finds what the layers of a model of transformers add to its residual stream, and checks it by computing.

The model is run on an example. Each layer's own code runs with streams in place of hidden states, and each place that
reads them gets a connection; see `hidden_streams`. Then the model with streams must give what it gave without them:
in evaluation, in training with the same dropout, and with a cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from gomhc.integrations.architectures import Architecture, Chains
from gomhc.integrations.hidden_streams import LayerCall, NotResidualError
from gomhc.integrations.layer_code import NoCodeError
from gomhc.integrations.stream_layer import (
    Branches,
    LayerPlan,
    carry_streams,
    carry_tokens,
    compute,
    finished,
    split_arguments,
)
from gomhc.layers import HyperConnection, expand, readout

NUM_STREAMS = 2
"""How many streams a trial has."""
FORMS = tuple((depth, norms_are_passed) for norms_are_passed in (False, True) for depth in range(4))
"""How far the hidden states are followed into submodules, and whether norms stand on their path, in this order."""
CACHES = ("past_key_values", "cache_params", "state", "mems")
"""Where models of transformers return what makes the next token cheap, and take it."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A list of layers of a model."""

    path: str
    """Its name in the model's body, `model.base_model`."""
    channels: int
    branches: tuple[Branches, ...]
    """Branches of each layer."""


def as_plain_data(stack: Stack) -> dict[str, Any]:
    """The stack as a configuration file can hold it: each kind of layer, and the kind of every layer."""
    kinds = list({str(branches): asdict(branches) for branches in stack.branches}.values())
    layers = [kinds.index(asdict(branches)) for branches in stack.branches]
    return {"path": stack.path, "channels": stack.channels, "kinds": kinds, "layers": layers}


def from_plain_data(stored: Mapping[str, Any]) -> Stack:
    """The stack that was stored so."""
    kinds = [Branches(**{**kind, "chains": _chains_from(kind["chains"])}) for kind in stored["kinds"]]
    branches = tuple(kinds[kind] for kind in stored["layers"])
    return Stack(path=stored["path"], channels=stored["channels"], branches=branches)


def _chains_from(stored: Mapping[str, Any] | None) -> Chains | None:
    if stored is None:
        return None
    branches = {name: tuple(map(tuple, chains)) for name, chains in stored["branches"].items()}
    return Chains(**{**stored, "branches": branches, "not_for_attention": tuple(stored["not_for_attention"])})


class RefusedError(ValueError):
    """A model cannot be given streams, and why."""


def find_stacks(
    model: PreTrainedModel, inputs: Mapping[str, Any], architecture: Architecture | None = None
) -> tuple[Stack, ...]:
    """Return the lists of layers that the model runs through, and where each layer reads its hidden states."""
    for config in (model.config, model.config.get_text_config()):
        if max(getattr(config, name, 0) or 0 for name in ("layerdrop", "decoder_layerdrop", "encoder_layerdrop")) > 0:
            raise RefusedError(f"{type(model).__name__} skips layers in training; set its layerdrop to 0")
    lists = _lists_of_layers(model, inputs, architecture)
    chains = None if architecture is None else architecture.chains(model.config)
    while True:
        try:
            stacks = _record(model, inputs, lists, chains)
            break
        except _LayerError as error:
            is_optional = not error.is_needed or error.path in _optional(lists)
            if not is_optional or len(lists) == 1:
                raise RefusedError(f"{type(model).__name__}: {error}") from error.__cause__
            del lists[error.path]
    _check(model, inputs, stacks)
    return stacks


# The lists of layers
# ----------------------------------------------------------------------------------------------------------------------


def _lists_of_layers(
    model: PreTrainedModel, inputs: Mapping[str, Any], architecture: Architecture | None
) -> dict[str, nn.ModuleList]:
    """The lists whose elements are called in turn, each with a tensor, by their names in the model's body."""
    body: Any = model.base_model
    lists = {name: module for name, module in body.named_modules() if isinstance(module, nn.ModuleList)}
    if architecture is not None:
        if architecture.layers not in lists:
            raise RefusedError(
                f"{type(body).__name__} has no list of layers {architecture.layers!r}, which its architecture names; "
                f"it has {', '.join(lists) or 'none'}"
            )
        lists = {architecture.layers: lists[architecture.layers]}
    called: list[nn.Module] = []
    with logged(called):
        _outputs(model, inputs, "evaluation")
    chosen: dict[str, nn.ModuleList] = {}
    reasons = []
    for name, layers in lists.items():
        if len(layers) == 0 or any(name.startswith(f"{outer}.") for outer in chosen):
            continue
        if _run_in_turn(layers, called):
            chosen[name] = layers
        elif any(layer in called for layer in layers):
            reasons.append(f"those of {name} are called several times, or not all on this example")
    if not chosen:
        raise RefusedError(
            f"{type(model).__name__} has no list of layers that are called in turn; {'; '.join(reasons)}"
        )
    return chosen


def _run_in_turn(layers: nn.ModuleList, called: Sequence[nn.Module]) -> bool:
    places = {id(layer): place for place, layer in enumerate(layers)}
    return [places[id(module)] for module in called if id(module) in places] == list(range(len(layers)))


def _optional(lists: dict[str, nn.ModuleList]) -> set[str]:
    """Lists that need not be of layers with residuals: not the largest, and not of what transformers checkpoints."""
    largest = max(lists, key=lambda name: sum(parameter.numel() for parameter in lists[name].parameters()))
    marked = {name for name, layers in lists.items() if isinstance(layers[0], GradientCheckpointingLayer)}
    return set(lists) - marked - {largest}


# What each layer does
# ----------------------------------------------------------------------------------------------------------------------


class _LayerError(ValueError):
    def __init__(self, path: str, reason: str, *, is_needed: bool) -> None:
        super().__init__(reason)
        self.path = path
        self.is_needed = is_needed


class _NewShapeError(NotResidualError):
    """A layer returns another shape than it is given: it has no residual, as the convolutions before an encoder."""


class _Recorder(LayerCall):
    """A call in which every place that reads gets a connection."""

    def __init__(self, events: list[Any], depth: int, norms_are_passed: bool) -> None:
        super().__init__({}, {}, depth, norms_are_passed)
        self.events = events

    def connection(self, place: str, streams: Tensor) -> HyperConnection:
        if place in self.connections:
            raise NotResidualError(f"it reads its hidden states twice at {place!r}")
        self.connections[place] = _trial_connection(streams.shape[-1], streams.device)
        self.events.append(place)
        return self.connections[place]


def _trial_connection(channels: int, device: torch.device) -> HyperConnection:
    """Its streams differ, and their mean is the plain residual."""
    connection = HyperConnection(
        None,
        channels,
        "go",
        NUM_STREAMS,
        dynamic=False,
        start="mean-stream",
        generator=torch.Generator().manual_seed(0),
    )
    return connection.to(device)


def _record(
    model: PreTrainedModel, inputs: Mapping[str, Any], lists: dict[str, nn.ModuleList], chains: Chains | None
) -> tuple[Stack, ...]:
    found: dict[str, list[Branches]] = {path: [] for path in lists}
    channels: dict[str, int] = {}

    def forward(layer: Any, path: str, index: int, *args: Any, **kwargs: Any) -> Any:
        hidden_states, args, kwargs = split_arguments(layer.original_class, args, kwargs)
        streams = expand(hidden_states, NUM_STREAMS) if index == 0 else hidden_states
        channels[path] = streams.shape[-1]
        try:
            branches, output = _branches(layer, chains, streams, args, kwargs)
        except (NotResidualError, NoCodeError) as error:
            reason = f"layer {index} of {path} ({layer.original_class.__name__}): {error}"
            raise _LayerError(path, reason, is_needed=not isinstance(error, _NewShapeError)) from error
        found[path].append(branches)
        return finished(output, as_tokens=index == len(lists[path]) - 1)

    with _trial(lists, {path: [None] * len(layers) for path, layers in lists.items()}):
        for path, layers in lists.items():
            for index, layer in enumerate(layers):
                layer.forward = partial(forward, layer, path, index)
        try:
            _outputs(model, inputs, "evaluation")
        finally:
            for layers in lists.values():
                for layer in layers:
                    del layer.forward
    return tuple(Stack(path=path, channels=channels[path], branches=tuple(found[path])) for path in lists)


def _branches(layer: Any, chains: Chains | None, streams: Tensor, args: Any, kwargs: Any) -> tuple[Branches, Any]:
    """The first form in which the streams follow the layer's code and keep its mean, and the layer's output."""
    # What is kept between calls (caches, states) is kept once.
    again = partial(deepcopy, (args, kwargs))
    plain_args, plain_kwargs = again()
    plain = _first(layer.original_class.forward(layer, readout(streams), *plain_args, **plain_kwargs))
    if not isinstance(plain, Tensor) or plain.shape != streams.shape[:-2] + streams.shape[-1:]:
        raise _NewShapeError("it returns another shape than it is given")
    reasons: list[Exception] = []
    for depth, norms_are_passed in FORMS if chains is None else FORMS[:1]:
        events: list[Any] = []
        run = _Recorder(events, depth, norms_are_passed)
        try:
            with logged(events):
                output = compute(layer, chains, run, streams, *again())
            _check_layer(run, _first(finished(output, as_tokens=True)), plain)
        except NoCodeError:
            raise
        except Exception as error:
            reasons.append(error)
            continue
        places = list(run.connections)
        names = _names(layer, events, places) if chains is None else places
        branches = Branches(
            places=dict(zip(places, names, strict=True)), depth=depth, norms_are_passed=norms_are_passed, chains=chains
        )
        return branches, compute(layer, chains, _Recorder([], depth, norms_are_passed), streams, args, kwargs)
    reason = next((error for error in reasons if isinstance(error, NotResidualError)), reasons[0])
    raise NotResidualError(str(reason) or type(reason).__name__) from reason


def _check_layer(run: LayerCall, mean: Tensor, plain: Tensor) -> None:
    """The streams must end in what the layer adds to them, and their mean must be what the plain layer gives."""
    if not run.connections:
        raise NotResidualError("it adds nothing to its hidden states")
    for place, connection in run.connections.items():
        if connection not in run.written:
            raise NotResidualError(f"what it reads at {place!r} is not added to its hidden states")
    difference = relative_difference(mean, plain)
    if not difference <= tolerance(plain.dtype):
        raise NotResidualError(f"it computes more than its branches: off by {difference:.2g} without that")


def _first(output: Any) -> Tensor:
    value: Tensor = output[0] if isinstance(output, tuple | list) else output
    return value


def _names(layer: nn.Module, events: list[Any], places: list[str]) -> list[str]:
    """A name for each connection, from the modules that are called between its place and the next one."""
    paths = {module: name for name, module in layer.named_modules()}
    names: list[str] = []
    starts = [events.index(place) for place in places]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        called = {paths[module]: module for module in events[start + 1 : end] if module in paths}
        outermost = [path for path in called if not any(path.startswith(f"{other}.") for other in called)]
        roles = dict.fromkeys(filter(None, (_role(path, called[path]) for path in outermost)))
        name = "_and_".join(list(roles)[:2]) or "branch"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


WORDS = {
    "cross_attention": ("cross", "encdec", "encoder_attn"),
    "attention": ("attn", "attention"),
    "feed_forward": ("mlp", "ff", "feed_forward", "feedforward", "fc", "moe", "expert", "dense", "intermediate"),
}
"""Names of connections, and parts of the names of modules that mean them."""


def _role(path: str, module: nn.Module) -> str:
    if "norm" in path.rsplit(".", 1)[-1] or not any(parameter.ndim > 1 for parameter in module.parameters()):
        return ""
    for role, words in WORDS.items():
        if any(word in path.lower() for word in words):
            return role
    return path.split(".")[0]


@contextmanager
def logged(events: list[Any]) -> Iterator[None]:
    """Append every module to the list when it is called."""
    hook = register_module_forward_pre_hook(lambda module, args: events.append(module))
    try:
        yield
    finally:
        hook.remove()


# The check
# ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def _trial(lists: Mapping[str, nn.ModuleList], branches: Mapping[str, Sequence[Any]]) -> Iterator[None]:
    """Let the layers carry streams for a while."""
    changed = []
    try:
        for path, layers in lists.items():
            for index, layer in enumerate(layers):
                plan = LayerPlan(
                    branches=branches[path][index],
                    num_streams=NUM_STREAMS,
                    is_first=index == 0,
                    is_last=index == len(layers) - 1,
                )
                carry_streams(layer, plan, {})
                changed.append(layer)
        yield
    finally:
        for layer in changed:
            carry_tokens(layer)


def _check(model: PreTrainedModel, inputs: Mapping[str, Any], stacks: Sequence[Stack]) -> None:
    """Compare the model with streams to the model without."""
    body: Any = model.base_model
    lists = {stack.path: body.get_submodule(stack.path) for stack in stacks}
    for how in ("evaluation", "training", "generation"):
        try:
            expected = _outputs(model, inputs, how)
        except Exception:  # the plain model cannot do this on such inputs
            continue
        with _trial(lists, {stack.path: stack.branches for stack in stacks}):
            for stack in stacks:
                for layer, branches in zip(lists[stack.path], stack.branches, strict=True):
                    for name in branches.places.values():
                        layer.connections[name] = _trial_connection(stack.channels, next(layer.parameters()).device)
            try:
                found = _outputs(model, inputs, how)
            except ValueError as error:
                raise RefusedError(f"{type(model).__name__} cannot run with streams, in {how}: {error}") from error
        difference = max(map(relative_difference, found, expected))
        if not difference <= tolerance(expected[0].dtype):
            raise RefusedError(
                f"{type(model).__name__} computes something else with streams, in {how}: off by {difference:.2g}"
            )


@torch.no_grad()
def _outputs(model: PreTrainedModel, inputs: Mapping[str, Any], how: str) -> list[Tensor]:
    """What the model gives in evaluation, in training, or for the last token after a cache has been filled."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model.train(how == "training")
            return _tensors(_generate(model, inputs) if how == "generation" else _call(model, inputs, use_cache=False))
    finally:
        for module, training in modes:
            module.training = training
        for buffer, value in buffers:
            buffer.copy_(value)


def _call(model: PreTrainedModel, inputs: Mapping[str, Any], *, use_cache: bool, **more: Any) -> Any:
    options = {"use_cache": use_cache} if "use_cache" in inspect.signature(model.forward).parameters else {}
    return model(**inputs, **options, **more)


def _generate(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    first = _call(model, {**inputs, name: inputs[name][:, :-1]}, use_cache=True)
    cache = next(key for key in CACHES if first.get(key) is not None)
    return _call(model, {**inputs, name: inputs[name][:, -1:]}, use_cache=True, **{cache: first[cache]})


def _tensors(output: Any) -> list[Tensor]:
    values = output.values() if isinstance(output, dict) else output
    return [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    if expected.is_meta:
        return 0.0
    if found.shape != expected.shape:
        return float("inf")
    finite = expected.isfinite()  # logits that are masked
    if not torch.equal(found.isfinite(), finite):
        return float("inf")
    difference = (found[finite] - expected[finite]).abs().max() / expected[finite].abs().max().clamp(min=1e-30)
    return float(difference)


def tolerance(dtype: torch.dtype) -> float:
    """How far rounding can carry two ways to compute the same, as a share of the largest value."""
    return min(512 * torch.finfo(dtype).eps, 0.1)
