r"""Hyper-connections in DeepSeek-V4's form: its Sinkhorn, its weights, and models that get another mixing.

Such modules of transformers (deepseek_v4, glm5_next) map streams (batch, time, d, c) to `post` (write), `comb` (the
transpose of mix) and `collapsed` (the branch's input). They are known by what they hold, `fn`, `base`, `scale` and
`hc_sinkhorn_iters`, so that importing this module does not take transformers.
d = num_streams, c = channels, p = logits of a mixing
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization, as_mixing, balance, register
from gomhc.birkhoff.description import describe, from_description
from gomhc.birkhoff.parametrization import FIT_TOLERANCE
from gomhc.birkhoff.sinkhorn import IteratedNormalization
from gomhc.checks import require_number
from gomhc.kernels import forms
from gomhc.kernels.plain_map import saturated
from gomhc.kernels.precision import in_float64
from gomhc.layers import Coefficients, HyperConnection
from gomhc.shapes import Float

Model = TypeVar("Model", bound=nn.Module)

PARTS = ("fn", "base", "scale", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "input_norm")
"""Attributes of a hyper-connection in DeepSeek-V4's form."""
SMALLEST_SINGULAR_VALUE = 1e-3
"""As a share of the largest one of a Jacobian: directions of the logits that hardly move the matrix are left alone."""


@register
@dataclass(frozen=True, kw_only=True)
class SinkhornV4(IteratedNormalization):
    r"""Sinkhorn-Knopp as DeepSeek-V4 has it.

        M = softmax of rows(Z) + e;    M <- columns / (sums + e),  M <- rows / (sums + e),  in turn;    B = M^T

    S normalisations of columns, and S - 1 of rows in between. The model applies M^T to its streams, so B is M^T: here
    it is rows whose sums are one.

    Args:
        num_streams: d.
        initial_leak: share of a stream that goes to others at first.
        num_iterations: S, `hc_sinkhorn_iters` of the model.
        epsilon: e, `hc_eps` of the model.

    Shape:
        - logits: (*batch, d²)
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.SinkhornV4(num_streams=4)(torch.randn(2, 16)).shape
        torch.Size([2, 4, 4])
    """

    key: ClassVar[str] = "sinkhorn-v4"

    epsilon: float = 1e-6
    """Added to the softmax and to each sum (e)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("epsilon", self.epsilon, least=0)

    @property
    def kernel(self) -> str | None:
        return forms.single("sinkhorn-v4", self.num_streams, self.num_iterations, self.epsilon)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        z = saturated(logits).unflatten(-1, (self.num_streams, self.num_streams))
        m = z.softmax(-1) + self.epsilon
        m = m / (m.sum(-2, keepdim=True) + self.epsilon)
        for _ in range(self.num_iterations - 1):
            m = m / (m.sum(-1, keepdim=True) + self.epsilon)
            m = m / (m.sum(-2, keepdim=True) + self.epsilon)
        return m.mT

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Balanced already, so its logarithm is a fixed point of the iteration."""
        return matrix.clamp(min=torch.finfo(torch.float32).tiny).log().mT.flatten(-2)


def from_deepseek_v4(
    branch: Callable[..., Any] | None,
    fn: Float[Tensor, "size dc"],
    base: Float[Tensor, " size"],
    scale: Float[Tensor, 3],
    *,
    epsilon: float = 1e-6,
    num_iterations: int = 20,
    norm_epsilon: float = 1e-6,
) -> HyperConnection:
    """Make a connection that computes what DeepSeek-V4's does with these weights.

    Args:
        branch: as for :class:`gomhc.HyperConnection`.
        fn: its weight.
        base: its bias.
        scale: its scales of read, write and mix.
        epsilon: `hc_eps` of the model.
        num_iterations: `hc_sinkhorn_iters` of the model.
        norm_epsilon: `rms_norm_eps` of the model.

    Shape:
        - fn: (d (d + 2), d c), base: (d (d + 2)), scale: (3)

    Example::

        >>> from gomhc.integrations.deepseek_v4 import from_deepseek_v4
        >>> connection = from_deepseek_v4(nn.Linear(8, 8), torch.randn(24, 32), torch.zeros(24), torch.ones(3))
        >>> connection(torch.randn(2, 4, 8)).shape
        torch.Size([2, 4, 8])
    """
    d = next((d for d in range(1, len(base)) if d * (d + 2) == len(base)), 0)
    if d == 0 or fn.shape[0] != len(base) or fn.shape[1] % d != 0 or scale.shape != (3,):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (fn, base, scale))
        raise ValueError(f"expected fn (d(d + 2), d c), base (d(d + 2)) and scale (3), got {shapes}")
    sinkhorn = SinkhornV4(num_streams=d, num_iterations=num_iterations, epsilon=epsilon)
    connection = HyperConnection(branch, fn.shape[1] // d, sinkhorn, read_offset=epsilon, norm_epsilon=norm_epsilon)
    connection.coefficients.load_state_dict({"weight": fn, "bias": base, "scale": scale})
    return connection.to(fn.device)


def to_deepseek_v4(connection: HyperConnection) -> dict[str, Tensor]:
    """Return `fn`, `base` and `scale` of a connection that is in DeepSeek-V4's form.

    Args:
        connection: a dynamic one that mixes by :class:`gomhc.SinkhornV4`.

    Example::

        >>> from gomhc.integrations.deepseek_v4 import to_deepseek_v4
        >>> to_deepseek_v4(gomhc.HyperConnection(None, 8, "sinkhorn-v4"))["fn"].shape
        torch.Size([24, 32])
    """
    parts = connection.coefficients
    if not isinstance(parts.mixing, SinkhornV4) or parts.weight is None or parts.scale is None:
        raise ValueError(f"only dynamic connections with SinkhornV4 have DeepSeek-V4's form, not {parts}")
    return {"fn": parts.weight.detach(), "base": parts.bias.detach(), "scale": parts.scale.detach()}


# Modules of transformers
# ----------------------------------------------------------------------------------------------------------------------


def is_deepseek_v4(module: nn.Module) -> bool:
    """Whether it maps streams to (post, comb, collapsed), with Sinkhorn's iteration for comb."""
    return all(hasattr(module, name) for name in PARTS)


def sinkhorn_of(module: Any) -> SinkhornV4:
    """The mixing of such a module."""
    return SinkhornV4(num_streams=module.hc_mult, num_iterations=module.hc_sinkhorn_iters, epsilon=module.hc_eps)


def to_coefficients(module: Any) -> Coefficients:
    """Coefficients of our own that compute what this module computes; they are copies of its weights."""
    connection = from_deepseek_v4(
        None,
        module.fn,
        module.base,
        module.scale,
        epsilon=module.hc_eps,
        num_iterations=module.hc_sinkhorn_iters,
        norm_epsilon=module.input_norm.eps,
    )
    return connection.coefficients


def replaced_forward(
    module: nn.Module, read: Callable[[Coefficients, Tensor], tuple[Tensor, Tensor, Tensor]]
) -> tuple[str, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
    """A forward for this module that computes with `read`, and the attribute of the module to put it in.

    `read` is called as `Coefficients.read` is, with the coefficients in front.
    """

    def forward(hidden_streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        coefficients = to_coefficients(module)  # now: a hook may bring the weights just before
        branch_input, write, mix = read(coefficients, hidden_streams)
        return write, mix.mT, branch_input

    # Hooks of accelerate replace `forward` by a function that calls `_old_forward`.
    return "_old_forward" if "_old_forward" in vars(module) else "forward", forward


# Another mixing
# ----------------------------------------------------------------------------------------------------------------------


class SwappedConnection(nn.Module):
    """Called as a hyper-connection of DeepSeek-V4 is, with any mixing: streams -> (post, comb, collapsed)."""

    def __init__(self, coefficients: Coefficients, replaced: nn.Module) -> None:
        super().__init__()
        self.coefficients = coefficients
        # In a tuple it is no submodule: its weights are not trained, saved or moved, only its form is wanted again.
        self.replaced = (deepcopy(replaced).to("meta"),)

    def forward(self, hidden_streams: Float[Tensor, "batch time d c"]) -> tuple[Tensor, Tensor, Tensor]:
        branch_input, write, mix = self.coefficients.read(hidden_streams)
        return write, mix.mT, branch_input


def swap_mixing(model: Model, mixing: Parametrization | str | None, *, copy: bool = False) -> Model:
    """Replace Sinkhorn by another mixing in a model with DeepSeek-V4's hyper-connections.

    Reads and writes stay as they are. The mixing matrix that the bias gives stays the same, as far as `fit` comes, and
    so does, to first order, how the tokens steer it. A model that is swapped there and back computes what it did where
    the fit is exact and Sinkhorn's iterations converge. `save_pretrained` and `gomhc.from_pretrained` know such models.

    Args:
        model: a model of transformers (deepseek_v4, glm5_next).
        mixing: a value or text, as for :class:`gomhc.HyperConnection`; None brings Sinkhorn back.
        copy: whether to change a copy of the model instead of the model itself.

    Returns:
        The changed model.

    Example::

        >>> from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
        >>> config = DeepseekV4Config(
        ...     vocab_size=61, hidden_size=32, moe_intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        ...     num_key_value_heads=1, head_dim=16, q_lora_rank=16, o_lora_rank=16, o_groups=2, n_routed_experts=4,
        ...     num_experts_per_tok=2, index_n_heads=2, index_head_dim=16,
        ... )
        >>> model = gomhc.swap_mixing(DeepseekV4ForCausalLM(config), "go")
        >>> model = gomhc.swap_mixing(model, None)
    """
    from gomhc.integrations.checkpoints import mark, unmark  # which take transformers

    places = _places(model)
    d = places[0][2].mixing.num_streams
    chosen = None if mixing is None else as_mixing(mixing, d)
    if copy:
        model = deepcopy(model)
        places = _places(model)
    distances = []
    for parent, name, source in places:
        module = getattr(parent, name)
        replaced = module.replaced[0] if isinstance(module, SwappedConnection) else module
        coefficients, distance = transfer(source, chosen or sinkhorn_of(replaced))
        swapped = _restored(replaced, coefficients) if chosen is None else SwappedConnection(coefficients, replaced)
        setattr(parent, name, swapped.train(module.training))
        distances.append(distance)
    pretrained: Any = model
    if chosen is not None:
        mark(pretrained, "swap_mixing", {"parametrization": describe(chosen)})
    elif hasattr(pretrained.config, "gomhc"):
        unmark(pretrained)
    if max(distances) > FIT_TOLERANCE:
        warnings.warn(
            f"the matrices of {chosen} that come closest to the model's are up to {max(distances):.2g} away from them: "
            f"it no longer computes quite the same; a larger expressivity, Transportation or Permutations come closer",
            stacklevel=2,
        )
    return model


def transfer(source: Coefficients, mixing: Parametrization) -> tuple[Coefficients, float]:
    r"""Coefficients with another mixing P, the same reads and writes, and the same mix to first order.

        P(b) = B_0,    J W = J_0 W_0

    B_0 is the matrix that the source's bias gives, J_0 and J the Jacobians there, W_0 and W the weights that steer the
    logits. Also: how far P(b) stays from B_0.
    """
    num_kept = 2 * source.mixing.num_streams  # logits of read and write
    kept, (old_weight, old_bias) = _parts(source, slice(num_kept)), _parts(source, slice(num_kept, None))
    matrix = source.mixing(old_bias)
    if not mixing.can_fit(matrix):
        matrix = balance(matrix)
    bias, distance = mixing.fit(matrix)
    inverse = torch.linalg.pinv(_jacobian(mixing, bias), rtol=SMALLEST_SINGULAR_VALUE)
    weight = inverse @ (_jacobian(source.mixing, old_bias) @ old_weight)
    target = _like(source, mixing)
    weights = {"weight": torch.cat((kept[0], weight)), "bias": torch.cat((kept[1], bias)), "scale": source.scale}
    target.load_state_dict(weights)
    return target, distance.item()


def rebuild(model: nn.Module, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    mixing = from_description(description["parametrization"])
    for parent, name, source in _places(model):
        setattr(parent, name, SwappedConnection(_like(source, mixing), getattr(parent, name)))


def _like(source: Coefficients, mixing: Parametrization) -> Coefficients:
    """New coefficients for the same streams."""
    return Coefficients(
        source.dim,
        mixing,
        read_offset=source.read_offset,
        norm_epsilon=source.norm_epsilon,
        device=source.bias.device,
        dtype=source.bias.dtype,
    )


def _parts(coefficients: Coefficients, rows: slice) -> tuple[Tensor, Tensor]:
    """Some rows of the weight and of the bias, in float64."""
    assert coefficients.weight is not None
    return in_float64(coefficients.weight.detach()[rows]), in_float64(coefficients.bias.detach()[rows])


def _jacobian(mixing: Parametrization, logits: Float[Tensor, " p"]) -> Float[Tensor, "dd p"]:
    matrix: Any = torch.func.jacrev(mixing.matrix)(logits)
    return matrix.flatten(0, 1)


def _places(model: nn.Module) -> list[tuple[nn.Module, str, Coefficients]]:
    """Each hyper-connection: the module that holds it, its name there, and its coefficients."""
    places = list(_find(model))
    if not places:
        raise ValueError(
            f"{type(model).__name__} has no hyper-connections in DeepSeek-V4's form, which the models deepseek_v4 and "
            f"glm5_next of transformers have; gomhc.upcycle gives streams to a model that has none"
        )
    return places


def _find(model: nn.Module) -> Iterator[tuple[nn.Module, str, Coefficients]]:
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, SwappedConnection):
                yield parent, name, child.coefficients
            elif is_deepseek_v4(child):
                yield parent, name, to_coefficients(child)


def _restored(replaced: nn.Module, coefficients: Coefficients) -> nn.Module:
    """The module as it was, with the weights that these coefficients mean."""
    module: Any = deepcopy(replaced)
    module.fn, module.base, module.scale = coefficients.weight, coefficients.bias, coefficients.scale
    return module
