"""Watching a model compute: the streams and coefficients of each hyper-connection, with nothing changed.

Any model will do that holds our `Coefficients` (the GPT, upcycled models, swapped ones) or hyper-connections in
DeepSeek-V4's form. d = num_streams, c = channels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from gomhc.integrations.deepseek_v4 import is_deepseek_v4, replaced_forward
from gomhc.kernels import plain_streams
from gomhc.layers import Coefficients, Pending, State, written
from gomhc.shapes import Float


class Seen(NamedTuple):
    """What one connection computed, in the order of the forward pass; all are part of autograd's graph."""

    name: str
    streams: Float[Tensor, "*batch d c"]
    logits: Float[Tensor, "*#batch size"]
    """Logits of read, write and mix in turn, before the sigmoids and the mixing."""
    sizes: tuple[int, int, int]
    """Numbers of logits of read, write and mix."""
    read: Float[Tensor, "*#batch d"]
    write: Float[Tensor, "*#batch d"]
    mix: Float[Tensor, "*#batch d d"]


@contextmanager
def watch(model: nn.Module) -> Iterator[list[Seen]]:
    """Yield a list that fills while the model computes: what each connection saw when it was first called.

    Meanwhile the connections compute by the plain equations instead of the fused kernels.
    """
    seen: list[Seen] = []
    watched: list[tuple[nn.Module, str, Any]] = []

    def replace(module: nn.Module, method: str, function: Callable[..., Any]) -> None:
        watched.append((module, method, vars(module).get(method)))
        setattr(module, method, function)  # on the instance, in front of the class's own

    for name, module in model.named_modules():
        read = partial(_watched_read, _short(name), seen)
        if isinstance(module, Coefficients):
            replace(module, "read", partial(read, module))
        elif is_deepseek_v4(module):
            replace(module, *replaced_forward(module, read))
    if not watched:
        raise ValueError(
            f"{type(model).__name__} has no hyper-connections to inspect; "
            f"gomhc.upcycle adds them to a model of transformers, and GPTConfig(mixing=...) to a GPT"
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
    name: str, seen: list[Seen], coefficients: Coefficients, streams: Tensor | Pending
) -> tuple[Tensor, State]:
    """`Coefficients.read` that leaves what it computes in `seen`, the first time."""
    streams = written(streams)
    logits = coefficients.logits(
        streams
    ).clone()  # or static ones would be the bias, which has the gradient of all calls
    read, write, mix = coefficients.from_logits(logits)
    if all(name != other.name for other in seen):
        seen.append(Seen(name, streams, logits, coefficients.sizes, read, write, mix))
    return plain_streams.read(streams, read), State(streams, write, mix)


def _short(name: str) -> str:
    """Drop the parts that all names have: `model.layers.3.connections.attention.coefficients` -> `3 attention`."""
    common = {"model", "layers", "transformer", "h", "gpt_neox", "blocks", "connections", "coefficients", "base_model"}
    return " ".join(part for part in name.split(".") if part not in common)
