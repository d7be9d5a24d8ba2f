"""How the decoder layers of transformers are built: one entry for each family of models.

A layer is x <- x + F_1(x), then x <- x + F_2(x), ..., and each F is a chain of the layer's own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

Chain = tuple[str, ...]
"""Modules of a layer by name, applied one after the other."""


def _never(config: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How the decoder layers of a family of models are built.

    Args:
        branches: what is added to the residual stream, in order: a name, and the chain of modules that makes it.
        attention: the module that gets the layer's further arguments (mask, positions, cache).
        layers: the list of decoder layers in the model's body, `model.base_model`.
        not_for_attention: arguments of the layer that its attention is not given.
        is_parallel: whether, by the model's configuration, all branches see the same x and are added at once.

    Example::

        >>> architecture = gomhc.Architecture(branches={
        ...     "attention": ("input_layernorm", "self_attn"),
        ...     "feed_forward": ("post_attention_layernorm", "mlp"),
        ... })
    """

    branches: Mapping[str, Chain]
    """What is added to the residual stream, in order: a name, and the chain of modules that makes it."""
    attention: str = "self_attn"
    """The module that the layer's further arguments (mask, positions, cache) go to."""
    layers: str = "layers"
    """The list of decoder layers in the model's body, `model.base_model`."""
    not_for_attention: tuple[str, ...] = ()
    """Arguments of the layer that its attention is not given."""
    is_parallel: Callable[[Any], bool] = _never
    """Whether, by the model's configuration, all branches see the same x and are added at once."""

    def connections(self, config: Any) -> dict[str, tuple[Chain, ...]]:
        """A name for each hyper-connection of a layer, and the chains whose sum is its branch."""
        if self.is_parallel(config):
            return {"_and_".join(self.branches): tuple(self.branches.values())}
        return {name: (chain,) for name, chain in self.branches.items()}

    def check(self, layer: nn.Module) -> None:
        """Every module of the layer must be in one of the chains, or something it computes would be lost."""
        known = {name for chain in self.branches.values() for name in chain}
        present = {name for name, _ in layer.named_children()}
        if known != present:
            missing, unknown = sorted(known - present), sorted(present - known)
            raise ValueError(
                f"{type(layer).__name__} is not built as its architecture says: "
                f"{f'it has no {missing}; ' if missing else ''}{f'no branch has its {unknown}; ' if unknown else ''}"
                f"gomhc.register_architecture says how it is built"
            )


PRE_NORM = Architecture(
    branches={
        "attention": ("input_layernorm", "self_attn"),
        "feed_forward": ("post_attention_layernorm", "mlp"),
    }
)
PRE_AND_POST_NORM = Architecture(
    branches={
        "attention": ("input_layernorm", "self_attn", "post_attention_layernorm"),
        "feed_forward": ("pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm"),
    }
)
POST_NORM = Architecture(
    branches={
        "attention": ("self_attn", "post_attention_layernorm"),
        "feed_forward": ("mlp", "post_feedforward_layernorm"),
    }
)
GPT2 = Architecture(
    branches={"attention": ("ln_1", "attn"), "feed_forward": ("ln_2", "mlp")},
    attention="attn",
    layers="h",
    not_for_attention=("encoder_hidden_states", "encoder_attention_mask"),
)
GPT_NEOX = Architecture(
    branches={
        "attention": ("input_layernorm", "attention", "post_attention_dropout"),
        "feed_forward": ("post_attention_layernorm", "mlp", "post_mlp_dropout"),
    },
    attention="attention",
    is_parallel=lambda config: config.use_parallel_residual,
)

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "gemma": PRE_NORM,
    "gemma2": PRE_AND_POST_NORM,
    "gemma3_text": PRE_AND_POST_NORM,
    "llama": PRE_NORM,
    "mistral": PRE_NORM,
    "olmo2": POST_NORM,
    "qwen2": PRE_NORM,
    "qwen3": PRE_NORM,
    "smollm3": PRE_NORM,
}
"""`config.model_type` -> how its layers are built. SmolLM and SmolLM2 are of type llama."""


def register_architecture(model_type: str, architecture: Architecture) -> None:
    """Teach `gomhc.upcycle` another family of models.

    Compare the logits of a model and of its upcycled copy: they are the same up to rounding, or the entry is wrong.

    Args:
        model_type: what `model.config.model_type` says.
        architecture: how the model's layers are built.

    Example::

        >>> gomhc.register_architecture("my_model", gomhc.Architecture(branches={
        ...     "attention": ("input_layernorm", "self_attn"),
        ...     "feed_forward": ("post_attention_layernorm", "mlp"),
        ... }))
    """
    ARCHITECTURES[model_type] = architecture


def architecture_of(model_type: str) -> Architecture:
    """Return the architecture of a type of model."""
    if model_type not in ARCHITECTURES:
        raise ValueError(
            f"gomhc.upcycle knows {', '.join(sorted(ARCHITECTURES))}, not {model_type!r}; "
            f"gomhc.register_architecture({model_type!r}, gomhc.Architecture(branches=...)) adds it, in a few lines: "
            f"see gomhc/integrations/architectures.py"
        )
    return ARCHITECTURES[model_type]
