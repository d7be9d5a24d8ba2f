r"""Hyper-connections in DeepSeek-V4's form: its Sinkhorn, its weights, and modules that get another mixing.

Such modules of transformers (deepseek_v4, glm5_next) map streams (batch, time, d, c) to `post` (write), `comb` (the
transpose of mix) and `collapsed` (the branch's input). They are known by what they hold, `fn`, `base`, `scale` and
`hc_sinkhorn_iters`, so that importing this module does not take transformers.
d = num_streams, c = channels, p = logits of a mixing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization, balance, register
from gomhc.birkhoff.sinkhorn import IteratedNormalization
from gomhc.checks import require_number
from gomhc.integrations.in_float32 import InFloat32
from gomhc.kernels import forms
from gomhc.kernels.plain_map import saturated
from gomhc.kernels.precision import in_float64
from gomhc.layers import Coefficients, HyperConnection, State
from gomhc.shapes import Float

PARTS = ("fn", "base", "scale", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "input_norm")
"""Attributes of a hyper-connection in DeepSeek-V4's form."""
LEAST_COMPILED = 1e-12
"""Least e with which factors of rows and columns, which C++ computes with, stay in the range of float32."""
SMALLEST_SINGULAR_VALUE = 1e-3
"""As a share of the largest one of a Jacobian: directions of the logits that hardly move the matrix are left alone."""


@register
@dataclass(frozen=True, kw_only=True)
class SinkhornV4(IteratedNormalization):
    r"""Sinkhorn-Knopp as in DeepSeek-V4.

        M = softmax of rows(Z) + e;    M <- columns / (sums + e),  M <- rows / (sums + e),  in turn;    B = M^T

    Columns are normalised S times, and rows S - 1 times in between. The model applies M^T to its streams, so B is M^T:
    the rows of B sum to one, up to e, and its columns have an error.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        num_iterations: number of normalisations of columns of M (S), `hc_sinkhorn_iters` of the model.
        epsilon: added to the softmax and to each sum (e), `hc_eps` of the model.

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
        if self.epsilon < LEAST_COMPILED:
            return None
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
    """Return a connection that computes the same as DeepSeek-V4's hyper-connection with these weights.

    Args:
        branch: the branch, as for :class:`gomhc.HyperConnection`.
        fn: weight of DeepSeek-V4's module.
        base: bias of the module.
        scale: scales of read, write and mix of the module.
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
    """Return `fn`, `base` and `scale` of a connection in DeepSeek-V4's form.

    Args:
        connection: a dynamic connection whose mixing is :class:`gomhc.SinkhornV4`.

    Example::

        >>> from gomhc.integrations.deepseek_v4 import to_deepseek_v4
        >>> to_deepseek_v4(gomhc.HyperConnection(None, 8, "sinkhorn-v4"))["fn"].shape
        torch.Size([24, 32])
    """
    parts = connection.coefficients
    if not isinstance(parts.mixing, SinkhornV4) or parts.weight is None or parts.scale is None:
        raise ValueError(f"expected a dynamic connection with SinkhornV4, as DeepSeek-V4 has, got {parts}")
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
    module: nn.Module, read: Callable[[Coefficients, Tensor], tuple[Tensor, State]]
) -> tuple[str, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
    """A forward for this module that computes with `read`, and the attribute of the module to put it in.

    `read` is called as `Coefficients.read` is, with the coefficients in front.
    """

    def forward(hidden_streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        coefficients = to_coefficients(module)  # now: a hook may bring the weights just before
        branch_input, state = read(coefficients, hidden_streams)
        return state.write, state.mix.mT, branch_input

    # Hooks of accelerate replace `forward` by a function that calls `_old_forward`.
    return "_old_forward" if "_old_forward" in vars(module) else "forward", forward


# Another mixing
# ----------------------------------------------------------------------------------------------------------------------


class SwappedConnection(InFloat32):
    """Called as a hyper-connection of DeepSeek-V4 is, with any mixing: streams -> (post, comb, collapsed)."""

    def __init__(self, coefficients: Coefficients, replaced: nn.Module) -> None:
        super().__init__()
        self.coefficients = coefficients
        # In a tuple it is no submodule: its weights are not trained, saved or moved, only its form is wanted again.
        self.replaced = (deepcopy(replaced).to("meta"),)

    def forward(self, hidden_streams: Float[Tensor, "batch time d c"]) -> tuple[Tensor, Tensor, Tensor]:
        branch_input, state = self.coefficients.read(hidden_streams)
        return state.write, state.mix.mT, branch_input


def transfer(source: Coefficients, mixing: Parametrization) -> tuple[Coefficients, float]:
    r"""Coefficients with another mixing P, the same reads and writes, and the same mix to first order.

        P(b) = B_0,    J W = J_0 W_0

    B_0 is the matrix that the source's bias gives, J_0 and J the Jacobians there, W_0 and W the weights that steer the
    logits. Also: how far P(b) stays from B_0.
    """
    num_kept = 2 * source.mixing.num_streams  # logits of read and write
    kept, steering = _parts(source, slice(num_kept)), _parts(source, slice(num_kept, None))
    weight, bias, distance = transferred(source.mixing, *steering, mixing)
    target = _like(source, mixing)
    weights = {"weight": torch.cat((kept[0], weight)), "bias": torch.cat((kept[1], bias)), "scale": source.scale}
    target.load_state_dict(weights)
    return target, distance


def transferred(
    old: Parametrization, old_weight: Float[Tensor, "p0 dc"], old_bias: Float[Tensor, " p0"], new: Parametrization
) -> tuple[Float[Tensor, "p dc"], Float[Tensor, " p"], float]:
    """Weight and bias of the logits of the new mixing, in float64, and how far its static matrix stays away."""
    old_weight, old_bias = in_float64(old_weight.detach()), in_float64(old_bias.detach())
    matrix = old(old_bias)
    if not new.can_fit(matrix):
        matrix = balance(matrix)
    bias, distance = new.fit(matrix)
    inverse = torch.linalg.pinv(_jacobian(new, bias), rtol=SMALLEST_SINGULAR_VALUE)
    return inverse @ (_jacobian(old, old_bias) @ old_weight), bias, distance.item()


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


@dataclass(frozen=True)
class SinkhornPlace:
    """One hyper-connection in DeepSeek-V4's form, and how it gets another mixing."""

    parent: nn.Module
    name: str
    """The attribute of the parent that holds it."""

    @property
    def num_streams(self) -> int:
        """Number of streams (d)."""
        return self._coefficients().mixing.num_streams

    def swap(self, mixing: Parametrization | None) -> float:
        """Mix by another method, or by Sinkhorn again; return how far the static matrix is from the one before."""
        module = getattr(self.parent, self.name)
        replaced = module.replaced[0] if isinstance(module, SwappedConnection) else module
        coefficients, distance = transfer(self._coefficients(), mixing or sinkhorn_of(replaced))
        swapped = _restored(replaced, coefficients) if mixing is None else SwappedConnection(coefficients, replaced)
        setattr(self.parent, self.name, swapped.train(module.training))
        return distance

    def rebuild(self, mixing: Parametrization) -> None:
        """Put the mixing in Sinkhorn's place; its weights are initial ones."""
        swapped = SwappedConnection(_like(self._coefficients(), mixing), getattr(self.parent, self.name))
        setattr(self.parent, self.name, swapped)

    def _coefficients(self) -> Coefficients:
        module = getattr(self.parent, self.name)
        return module.coefficients if isinstance(module, SwappedConnection) else to_coefficients(module)


def find_sinkhorn(model: nn.Module) -> Iterator[SinkhornPlace]:
    """Each hyper-connection in DeepSeek-V4's form, swapped or not."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, SwappedConnection) or is_deepseek_v4(child):
                yield SinkhornPlace(parent, name)


def _restored(replaced: nn.Module, coefficients: Coefficients) -> nn.Module:
    """The module as it was, with the weights that these coefficients mean."""
    module: Any = deepcopy(replaced)
    module.fn, module.base, module.scale = coefficients.weight, coefficients.bias, coefficients.scale
    return module
