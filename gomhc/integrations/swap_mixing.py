"""How does a model with DeepSeek-V4's hyper-connections get another mixing than Sinkhorn's, and that one back?

Those modules map streams (batch, time, d, c) to `post` (write), `comb` (the transpose of mix) and the branch's input.
d = num_streams, c = channels, p = logits of the parametrization
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from gomhc.birkhoff import Parametrization, Promise, balance
from gomhc.birkhoff.description import describe, from_description
from gomhc.birkhoff.parametrization import FIT_TOLERANCE, is_doubly_stochastic
from gomhc.integrations.checkpoints import mark, unmark
from gomhc.integrations.deepseek_v4 import is_deepseek_v4, sinkhorn_of, to_coefficients
from gomhc.integrations.upcycle import choose
from gomhc.layers import Coefficients

Model = TypeVar("Model", bound=PreTrainedModel)
SMALLEST_SINGULAR_VALUE = 1e-3
"""Of a Jacobian, as a share of its largest: directions of the logits that hardly move the matrix are left alone."""


class Mixing(nn.Module):
    """Called as a hyper-connection of DeepSeek-V4 is, with any parametrization: streams -> (post, comb, collapsed)."""

    def __init__(self, coefficients: Coefficients, replaced: nn.Module) -> None:
        super().__init__()
        self.coefficients = coefficients
        # In a tuple it is no submodule: its weights are not trained, saved or moved, only its form is wanted again.
        self.replaced = (deepcopy(replaced).to("meta"),)

    def forward(self, hidden_streams: Float[Tensor, "batch time d c"]) -> tuple[Tensor, Tensor, Tensor]:
        branch_input, write, mix = self.coefficients.read(hidden_streams)
        return write, mix.mT, branch_input


def swap_mixing(model: Model, parametrization: Parametrization | str | None, *, copy: bool = False) -> Model:
    """Let `parametrization` mix the streams of a model with DeepSeek-V4's hyper-connections; None brings Sinkhorn back.

        model = gomhc.swap_mixing(DeepseekV4ForCausalLM.from_pretrained(...), "go")

    Reads and writes stay as they are. The mixing matrix that the bias gives stays the same, as far as `fit` comes, and
    so does, to first order, how the tokens steer it. A model that is swapped there and back computes what it did where
    the fit is exact. In place, unless `copy` asks for a changed copy. `save_pretrained` and `gomhc.from_pretrained` know
    such models.
    """
    places = _places(model)
    d = places[0][2].parametrization.num_streams
    chosen = None if parametrization is None else choose(parametrization, d)
    if copy:
        model = deepcopy(model)
        places = _places(model)
    distances = []
    for parent, name, source in places:
        module = getattr(parent, name)
        replaced = module.replaced[0] if isinstance(module, Mixing) else module
        coefficients, distance = transfer(source, chosen or sinkhorn_of(replaced))
        swapped = _restored(replaced, coefficients) if chosen is None else Mixing(coefficients, replaced)
        setattr(parent, name, swapped.train(module.training))
        distances.append(distance)
    if chosen is not None:
        mark(model, "swap_mixing", {"parametrization": describe(chosen)})
    elif hasattr(model.config, "gomhc"):
        unmark(model)
    if max(distances) > FIT_TOLERANCE:
        warnings.warn(
            f"the matrices of {chosen} that come closest to the model's are up to {max(distances):.2g} away from them: "
            f"it no longer computes quite the same; a larger expressivity, Transportation or Permutations come closer",
            stacklevel=2,
        )
    return model


def transfer(source: Coefficients, parametrization: Parametrization) -> tuple[Coefficients, float]:
    r"""Coefficients with another parametrization P, the same reads and writes, and the same mix to first order.

        P(b) = B_0,    J W = J_0 W_0

    B_0 is the matrix that the source's bias gives, J_0 and J the Jacobians there, W_0 and W the weights that steer the
    logits. Also: how far P(b) stays from B_0.
    """
    assert source.weight is not None and source.scale is not None
    target = Coefficients(
        source.dim, parametrization, read_offset=source.read_offset, norm_epsilon=source.norm_epsilon
    ).to(source.bias.device, source.bias.dtype)
    assert target.weight is not None and target.scale is not None
    old_bias = source.bias.detach()[_mix(source)].double()
    old_weight = source.weight.detach()[_mix(source)].double()
    matrix = source.parametrization(old_bias)
    if parametrization.promise is not Promise.NOTHING and not is_doubly_stochastic(matrix):
        matrix = balance(matrix)
    bias, distance = parametrization.fit(matrix)
    inverse = torch.linalg.pinv(_jacobian(parametrization, bias), rtol=SMALLEST_SINGULAR_VALUE)
    weight = inverse @ (_jacobian(source.parametrization, old_bias) @ old_weight)
    num_kept = _mix(source).start
    with torch.no_grad():
        target.bias.copy_(torch.cat((source.bias[:num_kept], bias.to(source.bias))))
        target.weight.copy_(torch.cat((source.weight[:num_kept], weight.to(source.weight))))
        target.scale.copy_(source.scale)
    return target, distance.item()


def _mix(coefficients: Coefficients) -> slice:
    """Where the logits of the mix are among all."""
    return slice(2 * coefficients.parametrization.num_streams, None)


def _jacobian(parametrization: Parametrization, logits: Float[Tensor, " p"]) -> Float[Tensor, "dd p"]:
    matrix: Any = torch.func.jacrev(parametrization.matrix)(logits)
    return matrix.flatten(0, 1)


def _places(model: PreTrainedModel) -> list[tuple[nn.Module, str, Coefficients]]:
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
            if isinstance(child, Mixing):
                yield parent, name, child.coefficients
            elif is_deepseek_v4(child):
                yield parent, name, to_coefficients(child)


def _restored(replaced: nn.Module, coefficients: Coefficients) -> nn.Module:
    """The module as it was, with the weights that these coefficients mean."""
    assert coefficients.weight is not None and coefficients.scale is not None
    module: Any = deepcopy(replaced)
    module.fn = nn.Parameter(coefficients.weight.detach())
    module.base = nn.Parameter(coefficients.bias.detach())
    module.scale = nn.Parameter(coefficients.scale.detach())
    return module


def rebuild(model: PreTrainedModel, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    parametrization = from_description(description["parametrization"])
    for parent, name, source in _places(model):
        fresh = Coefficients(
            source.dim, parametrization, read_offset=source.read_offset, norm_epsilon=source.norm_epsilon
        )
        setattr(parent, name, Mixing(fresh.to(source.bias.device), getattr(parent, name)))
