r"""Models of transformers whose hyper-connections leave the streams unmixed (hy_v4, qwen4_exp) get a mixing.

    streams <- mix streams + write F(read streams),    mix = P(a W x' + b)

Read and write stay the model's own; only `mix`, which was the identity, is new. Their modules are known by what they
hold, so that importing this module does not take transformers. d = num_streams, c = channels, p = logits of P
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization
from gomhc.integrations.deepseek_v4 import transferred
from gomhc.integrations.in_float32 import InFloat32, place_beside
from gomhc.integrations.made_class import Made
from gomhc.kernels import plain_streams
from gomhc.kernels.precision import at_least_float32, in_float64, without_autocast
from gomhc.layers.coefficients import INITIAL_SCALE
from gomhc.shapes import Float

NORM_EPSILON = 1e-6
"""Added to the mean square of the streams."""


class AddedMixing(InFloat32):
    """Mixes the streams of each token, near the identity at first; the tokens steer it as `Coefficients` does."""

    def __init__(self, dim: int, mixing: Parametrization, **place: Any) -> None:
        super().__init__()
        self.mixing = mixing
        self.weight = nn.Parameter(torch.zeros(mixing.num_logits, mixing.num_streams * dim, **place))
        self.bias = nn.Parameter(mixing.initial_logits().to(**place))
        self.scale = nn.Parameter(torch.full((1,), INITIAL_SCALE, **place))

    def forward(self, streams: Float[Tensor, "*batch d c"]) -> Float[Tensor, "*batch d c"]:
        precision = at_least_float32(streams.dtype)
        scale, bias = self.scale.to(precision), self.bias.to(precision)
        mix = self.mixing(plain_streams.steered_logits(streams, self.weight, scale, bias, NORM_EPSILON))
        with without_autocast(streams.device):
            return (mix @ streams.to(precision)).to(streams.dtype)

    def extra_repr(self) -> str:
        return str(self.mixing)


class MixedHYV4(nn.Module):
    """In front of HY-V4's hyper-connection: streams -> (post, collapsed, mixed streams)."""

    coefficients: AddedMixing

    def forward(self, hidden_streams: Float[Tensor, "batch time d c"]) -> tuple[Tensor, Tensor, Tensor]:
        return *super().forward(hidden_streams), self.coefficients(hidden_streams)


class MixedHYV4Layer(nn.Module):
    """In front of HY-V4's decoder layer, whose own forward takes the streams before mixing."""

    def forward(self, hidden_states: Float[Tensor, "batch time d c"], **options: Any) -> tuple[Tensor, Any]:
        layer: Any = self
        post, collapsed, mixed = layer.attn_hc(hidden_states)
        output, _, indices = layer.self_attn(hidden_states=layer.input_layernorm(collapsed), **options)
        hidden_states = _write(mixed, post, output)
        post, collapsed, mixed = layer.ffn_hc(hidden_states)
        return _write(mixed, post, layer.mlp(layer.post_attention_layernorm(collapsed))), indices


class MixedQwen4(nn.Module):
    """In front of Qwen4's gated residual: streams, flat -> (branch input, mixed streams, write)."""

    coefficients: AddedMixing
    hc_count: int

    def forward(self, hyper_input: Float[Tensor, "batch time dc"]) -> tuple[Tensor, Tensor, Tensor]:
        branch_input, streams, write = super().forward(hyper_input)
        return branch_input, self.coefficients(streams.unflatten(-1, (self.hc_count, -1))).flatten(-2), write


def _write(mixed: Tensor, post: Tensor, output: Tensor) -> Tensor:
    return (post.float().unsqueeze(-1) * output.float().unsqueeze(-2) + mixed.float()).to(mixed.dtype)


@dataclass(frozen=True)
class UnmixedPlace:
    """One hyper-connection of such a model, and how it gets a mixing."""

    module: Any
    layer: Any
    """The layer that holds it, where its forward changes, too."""
    in_front: type
    """The class that goes in front of the module's own."""

    @property
    def num_streams(self) -> int:
        """Number of streams (d)."""
        return self.module.hc_count if self.in_front is MixedQwen4 else self.module.hc_mult

    def swap(self, mixing: Parametrization | None) -> float:
        """Mix by another method, or not at all; return how far the static matrix is from the one before."""
        before = getattr(self.module, "coefficients", None)
        if mixing is None:
            if before is not None:
                del self.module.coefficients
                self._set_classes(_original)
            return 0.0
        self.rebuild(mixing)
        after = self.module.coefficients
        if before is None:
            identity = torch.eye(self.num_streams, dtype=torch.float64)
            return torch.linalg.matrix_norm(mixing(in_float64(after.bias.detach())).cpu() - identity).item()
        weight, bias, distance = transferred(before.mixing, before.weight, before.bias, mixing)
        after.load_state_dict({"weight": weight, "bias": bias, "scale": before.scale})
        return distance

    def rebuild(self, mixing: Parametrization) -> None:
        """Add the mixing; its weights are initial ones."""
        added = AddedMixing(self._dim, mixing, **place_beside(self.module))
        self.module.coefficients = added.train(self.module.training)
        self._set_classes(_mixed)

    @property
    def _dim(self) -> int:
        return self.module.hidden_size if self.in_front is MixedQwen4 else self.module.fn.shape[-1] // self.num_streams

    def _set_classes(self, change: Any) -> None:
        self.module.__class__ = change(type(self.module), self.in_front)
        if self.layer is not None:
            self.layer.__class__ = change(type(self.layer), MixedHYV4Layer)


def find_unmixed(model: nn.Module) -> Iterator[UnmixedPlace]:
    """Each hyper-connection that leaves its streams unmixed, or did before it got a mixing."""
    for parent in model.modules():
        for child in parent.children():
            if hasattr(child, "hc_post_magnitude"):
                yield UnmixedPlace(child, parent, MixedHYV4)
            elif getattr(child, "block_inject_weight", None) is not None and hasattr(child, "hc_count"):
                yield UnmixedPlace(child, None, MixedQwen4)


@cache
def _mixed(original: Any, in_front: Any) -> Any:
    """A class with ours in front, under its own name."""
    if issubclass(original, in_front):
        return original
    values = {"__module__": __name__, "made_by": (_mixed, (original, in_front))}
    return type(original.__name__, (Made, in_front, original), values)


def _original(mixed: Any, in_front: Any) -> Any:
    return mixed.made_by[1][0] if issubclass(mixed, in_front) else mixed
