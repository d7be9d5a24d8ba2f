"""Which streams and coefficients does a model have while it computes? They are watched, and nothing is changed.

Any model will do that holds our `Coefficients` (the GPT, upcycled models, swapped ones) or hyper-connections in
DeepSeek-V4's form. d = num_streams, c = channels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from gomhc.integrations.deepseek_v4 import is_deepseek_v4, to_coefficients
from gomhc.kernels import streams as plain
from gomhc.layers import Coefficients
from gomhc.shapes import Float


class Seen(NamedTuple):
    """What one connection computed, in the order of the forward pass; all are part of autograd's graph."""

    name: str
    streams: Float[Tensor, "*batch d c"]
    logits: tuple[Tensor, Tensor, Tensor]
    """Of read, write and mix, before the sigmoids and the parametrization."""
    read: Float[Tensor, "*#batch d"]
    write: Float[Tensor, "*#batch d"]
    mix: Float[Tensor, "*#batch d d"]


@contextmanager
def watch(model: nn.Module) -> Iterator[list[Seen]]:
    """A list that fills while the model computes: what each connection saw when it was first called.

    Meanwhile the connections compute by the plain equations instead of the fused kernels.
    """
    seen: list[Seen] = []
    watched: list[tuple[nn.Module, str, Any]] = []

    def replace(module: nn.Module, method: str, function: Callable[..., Any]) -> None:
        watched.append((module, method, vars(module).get(method)))
        setattr(module, method, function)  # on the instance, in front of the class's own

    for name, module in model.named_modules():
        if isinstance(module, Coefficients):
            replace(module, "read", _watched_read(_short(name), module, seen))
        elif is_deepseek_v4(module):
            # Hooks of accelerate replace `forward` by a function that calls `_old_forward`.
            method = "_old_forward" if "_old_forward" in vars(module) else "forward"
            replace(module, method, _watched_deepseek_v4(_short(name), module, seen))
    if not watched:
        raise ValueError(
            f"{type(model).__name__} has no hyper-connections to look at; "
            f"gomhc.upcycle gives a decoder of transformers some, and GPTConfig(mixing=...) a GPT"
        )
    try:
        yield seen
    finally:
        for module, method, before in watched:
            if before is None:
                delattr(module, method)
            else:
                setattr(module, method, before)


def _watched_read(
    name: str, coefficients: Coefficients, seen: list[Seen]
) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """`Coefficients.read` that leaves what it computes in `seen`, the first time."""

    def read(streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = coefficients.logits(streams).split(coefficients.sizes, dim=-1)
        weights = logits[0].sigmoid() + coefficients.read_offset
        found = Seen(name, streams, logits, weights, 2 * logits[1].sigmoid(), coefficients.parametrization(logits[2]))
        if all(name != other.name for other in seen):
            seen.append(found)
        return plain.read(streams, weights), found.write, found.mix

    return read


def _watched_deepseek_v4(
    name: str, module: nn.Module, seen: list[Seen]
) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """The forward of a hyper-connection of DeepSeek-V4; its `comb` is the transpose of mix."""

    def forward(hidden_streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        read = _watched_read(name, to_coefficients(module), seen)  # now: a hook may bring the weights just before
        collapsed, write, mix = read(hidden_streams)
        return write, mix.mT, collapsed

    return forward


def _short(name: str) -> str:
    """Without what all names have: `model.layers.3.connections.attention.coefficients` -> `3 attention`."""
    common = {"model", "layers", "transformer", "h", "gpt_neox", "blocks", "connections", "coefficients", "base_model"}
    return " ".join(part for part in name.split(".") if part not in common)
