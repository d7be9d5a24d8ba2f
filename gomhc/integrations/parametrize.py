"""Doubly stochastic weights in any module, through torch.nn.utils.parametrize. d = num_streams, p = num_logits"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.layers import FromLogits

Module = TypeVar("Module", bound=nn.Module)


def doubly_stochastic(
    module: Module, name: str, mixing: Parametrization | str = "go", generator: torch.Generator | None = None
) -> Module:
    """Constrain a square weight to be doubly stochastic; the optimizer then sees the free reals behind it.

    If the weight is already doubly stochastic, it is kept, as closely as the mixing can. Otherwise it is replaced by a
    random matrix near the identity. With a mixing that is not doubly stochastic, the weight has the properties that
    this mixing promises. You can read, assign, save and load the weight like any weight that torch parametrizes.

    Args:
        module: the module that has the weight; it is changed in place.
        name: name of the weight.
        mixing: map to the matrix, a value or text, as for :class:`gomhc.HyperConnection`. As text, it gets as many
            streams as the weight has rows.
        generator: random generator for the initial values.

    Shape:
        - weight: (*batch, d, d)

    Returns:
        The module.

    Example::

        >>> layer = gomhc.doubly_stochastic(nn.Linear(4, 4, bias=False), "weight", "go")
        >>> torch.allclose(layer.weight.sum(0), torch.ones(4), atol=1e-6)
        True
        >>> layer.weight = torch.eye(4)
    """
    if parametrize.is_parametrized(module, name):
        raise ValueError(
            f"{name!r} is already parametrized; remove that first with "
            f"torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})"
        )
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no tensor {name!r}; give the name of one of its weights")
    if weight.dim() < 2:
        raise ValueError(f"expected a weight of shape (*batch, d, d), but {name!r} has shape {tuple(weight.shape)}")
    chosen = as_mixing(mixing, weight.shape[-1] if isinstance(mixing, str) else None)
    d = chosen.num_streams
    if weight.shape[-2:] != (d, d):
        raise ValueError(f"{chosen} makes shape (*batch, {d}, {d}), but {name!r} has shape {tuple(weight.shape)}")
    keep = not weight.is_meta and chosen.admits(weight)
    initial = None if keep else _initial_logits(chosen, weight, generator)
    parametrize.register_parametrization(module, name, FromLogits(chosen, initial))
    return module


def _initial_logits(mixing: Parametrization, weight: Tensor, generator: torch.Generator | None) -> Tensor:
    """Logits near the identity for each matrix of `weight`, (*batch, p)."""
    draws = [mixing.initial_logits(generator) for _ in range(weight.shape[:-2].numel())]
    return torch.stack(draws).reshape(*weight.shape[:-2], mixing.num_logits).to(weight)
