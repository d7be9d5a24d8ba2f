"""Declarations of how the layers of a family of models are built, for models whose code does not show it.

A layer is x <- x + F_1(x), then x <- x + F_2(x), ..., and each F is a chain of the layer's own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Chain = tuple[str, ...]
"""Modules of a layer by name, applied one after the other."""


def _never(config: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How the decoder layers of a family of models are built.

    Args:
        branches: the branches in the order in which they are added to the residual stream: name -> the modules of the
            branch, applied one after the other.
        attention: name of the module that takes the layer's further arguments (mask, positions, cache).
        layers: name of the list of decoder layers in the model's body, `model.base_model`.
        not_for_attention: arguments of the layer that are not passed to its attention.
        is_parallel: function of the model's configuration: whether all branches see the same x and are added at once.

    Example::

        >>> architecture = gomhc.Architecture(branches={
        ...     "attention": ("input_layernorm", "self_attn"),
        ...     "feed_forward": ("post_attention_layernorm", "mlp"),
        ... })
    """

    branches: Mapping[str, Chain]
    """Branches in the order in which they are added to the residual stream: name -> the modules of the branch."""
    attention: str = "self_attn"
    """Name of the module that takes the layer's further arguments (mask, positions, cache)."""
    layers: str = "layers"
    """Name of the list of decoder layers in the model's body, `model.base_model`."""
    not_for_attention: tuple[str, ...] = ()
    """Arguments of the layer that are not passed to its attention."""
    is_parallel: Callable[[Any], bool] = _never
    """Function of the model's configuration: whether all branches see the same x and are added at once."""

    def chains(self, config: Any) -> Chains:
        """What a layer computes, by the model's configuration."""
        branches: dict[str, tuple[Chain, ...]] = {name: (chain,) for name, chain in self.branches.items()}
        if self.is_parallel(config):
            branches = {"_and_".join(self.branches): tuple(self.branches.values())}
        return Chains(branches=branches, attention=self.attention, not_for_attention=self.not_for_attention)


@dataclass(frozen=True, kw_only=True)
class Chains:
    """What a layer computes: for each connection the chains of modules whose sum is its branch."""

    branches: Mapping[str, tuple[Chain, ...]]
    attention: str
    """The module that gets the layer's further arguments."""
    not_for_attention: tuple[str, ...]
    """Arguments that are not passed on to the attention."""

    def __call__(self, layer: Any, hidden_states: Any, context: dict[str, Any]) -> Any:
        """Return the hidden states, a `HiddenStreams`, after this layer."""
        context = {name: value for name, value in context.items() if name not in self.not_for_attention}
        for name, chains in self.branches.items():
            branch_input = hidden_states.read(name)
            for chain in chains:
                hidden_states = hidden_states.plus(self._run(chain, layer, branch_input, context))
        return hidden_states

    def _run(self, chain: Chain, layer: Any, x: Any, context: dict[str, Any]) -> Any:
        for name in chain:
            module = getattr(layer, name)
            output = module(x, **context) if name == self.attention else module(x)
            x = output[0] if isinstance(output, tuple) else output  # attention weights stand behind
        return x


PRE_NORM = Architecture(
    branches={
        "attention": ("input_layernorm", "self_attn"),
        "feed_forward": ("post_attention_layernorm", "mlp"),
    }
)

ARCHITECTURES: dict[str, Architecture] = {}
"""`config.model_type` -> what a person has said about its layers; what is not here is found in their code."""


def register_architecture(model_type: str, architecture: Architecture) -> None:
    """Tell `gomhc.upcycle` how the layers of a family of models are built, if it cannot find that in their code.

    `upcycle` checks the declaration, and refuses it if it does not compute the same as the layers.

    Args:
        model_type: the value of `model.config.model_type`.
        architecture: how the model's layers are built.

    Example::

        >>> gomhc.register_architecture("my_model", gomhc.Architecture(branches={
        ...     "attention": ("input_layernorm", "self_attn"),
        ...     "feed_forward": ("post_attention_layernorm", "mlp"),
        ... }))
    """
    ARCHITECTURES[model_type] = architecture
