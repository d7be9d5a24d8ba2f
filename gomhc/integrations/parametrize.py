"""How does a weight of any module become doubly stochastic? Through torch.nn.utils.parametrize.

d = num_streams, p = num_logits
"""

from __future__ import annotations

import warnings
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from gomhc.birkhoff import Parametrization, Promise
from gomhc.birkhoff.parametrization import FIT_TOLERANCE, is_doubly_stochastic

Module = TypeVar("Module", bound=nn.Module)


def doubly_stochastic(
    module: Module, name: str, parametrization: Parametrization, generator: torch.Generator | None = None
) -> Module:
    """Make `module.<name>`, of shape (*batch, d, d), the image of free reals, which are what the optimizer sees.

    A weight that is doubly stochastic already is kept as closely as the parametrization can; any other is replaced by
    random ones near the identity. It can be read, assigned, saved and loaded as any weight that torch parametrizes:

        layer = gomhc.doubly_stochastic(nn.Linear(4, 4, bias=False), "weight", gomhc.Orthostochastic(num_streams=4))
        layer.weight = torch.eye(4)
    """
    if parametrize.is_parametrized(module, name):
        raise ValueError(f"{name!r} is parametrized already; parametrize.remove_parametrizations (torch) undoes that")
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no tensor {name!r} to make doubly stochastic")
    d = parametrization.num_streams
    if weight.shape[-2:] != (d, d):
        shape = tuple(weight.shape)
        raise ValueError(f"{parametrization} makes shape (*batch, {d}, {d}), but {name!r} has shape {shape}")
    free = parametrization.promise is Promise.NOTHING
    keep = not weight.is_meta and (free or is_doubly_stochastic(weight))
    initial = None if keep else _initial_logits(parametrization, weight, generator)
    parametrize.register_parametrization(module, name, _FromLogits(parametrization, initial))
    return module


def _initial_logits(parametrization: Parametrization, weight: Tensor, generator: torch.Generator | None) -> Tensor:
    """Logits near the identity for each matrix of `weight`, (*batch, p)."""
    draws = [parametrization.initial_logits(generator) for _ in range(weight.shape[:-2].numel())]
    return torch.stack(draws).reshape(*weight.shape[:-2], parametrization.num_logits).to(weight)


class _FromLogits(nn.Module):
    """What torch calls to read the weight (`forward`) and to assign it (`right_inverse`)."""

    def __init__(self, parametrization: Parametrization, initial: Tensor | None) -> None:
        super().__init__()
        self.parametrization = parametrization
        self.initial = initial  # what the first assignment, which registering makes, is to give

    def forward(self, logits: Tensor) -> Tensor:
        return self.parametrization(logits)

    def right_inverse(self, matrix: Tensor) -> Tensor:
        if self.initial is not None:
            initial, self.initial = self.initial, None
            return initial
        logits, distance = self.parametrization.fit(matrix)
        if (distance > max(FIT_TOLERANCE, matrix.shape[-1] * torch.finfo(matrix.dtype).eps)).any():
            warnings.warn(
                f"the closest matrix that {self.parametrization} can express is {distance.max():.2g} away from the one "
                f"assigned; a larger expressivity, Transportation or Permutations come closer",
                stacklevel=2,
            )
        return logits

    def extra_repr(self) -> str:
        return repr(self.parametrization)
