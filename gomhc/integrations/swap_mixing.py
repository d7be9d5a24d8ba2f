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
from torch import Tensor, nn
from transformers import PreTrainedModel

from gomhc.birkhoff import Parametrization, Promise, as_mixing, balance
from gomhc.birkhoff.description import describe, from_description
from gomhc.birkhoff.parametrization import FIT_TOLERANCE, is_doubly_stochastic
from gomhc.integrations.checkpoints import mark, unmark
from gomhc.integrations.deepseek_v4 import is_deepseek_v4, sinkhorn_of, to_coefficients
from gomhc.layers import Coefficients
from gomhc.shapes import Float

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
    the fit is exact and Sinkhorn's iterations converge.

    In place, unless `copy` asks for a changed copy. `save_pretrained` and `gomhc.from_pretrained` know such models.
    """
    places = _places(model)
    d = places[0][2].parametrization.num_streams
    chosen = None if parametrization is None else as_mixing(parametrization, d)
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
    num_kept = 2 * source.parametrization.num_streams  # logits of read and write
    kept, (old_weight, old_bias) = _parts(source, slice(num_kept)), _parts(source, slice(num_kept, None))
    matrix = source.parametrization(old_bias)
    if parametrization.promise is not Promise.NOTHING and not is_doubly_stochastic(matrix):
        matrix = balance(matrix)
    bias, distance = parametrization.fit(matrix)
    inverse = torch.linalg.pinv(_jacobian(parametrization, bias), rtol=SMALLEST_SINGULAR_VALUE)
    weight = inverse @ (_jacobian(source.parametrization, old_bias) @ old_weight)
    target = _like(source, parametrization)
    weights = {"weight": torch.cat((kept[0], weight)), "bias": torch.cat((kept[1], bias)), "scale": source.scale}
    target.load_state_dict(weights)
    return target, distance.item()


def _like(source: Coefficients, parametrization: Parametrization) -> Coefficients:
    """New coefficients for the same streams."""
    target = Coefficients(source.dim, parametrization, read_offset=source.read_offset, norm_epsilon=source.norm_epsilon)
    return target.to(source.bias.device, source.bias.dtype)


def _parts(coefficients: Coefficients, rows: slice) -> tuple[Tensor, Tensor]:
    """Some rows of the weight and of the bias, in float64."""
    assert coefficients.weight is not None
    return coefficients.weight.detach()[rows].double(), coefficients.bias.detach()[rows].double()


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
    module: Any = deepcopy(replaced)
    module.fn, module.base, module.scale = coefficients.weight, coefficients.bias, coefficients.scale
    return module


def rebuild(model: PreTrainedModel, description: dict[str, Any]) -> None:
    """Do what was done to the model that was saved; the weights come later."""
    parametrization = from_description(description["parametrization"])
    for parent, name, source in _places(model):
        setattr(parent, name, Mixing(_like(source, parametrization), getattr(parent, name)))
