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
from gomhc.birkhoff.measures import marginal_error
from gomhc.birkhoff.parametrization import FIT_TOLERANCE

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
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no tensor {name!r} to make doubly stochastic")
    d = parametrization.num_streams
    if weight.shape[-2:] != (d, d):
        shape = tuple(weight.shape)
        raise ValueError(f"{parametrization} makes shape (*batch, {d}, {d}), but {name!r} has shape {shape}")
    with torch.no_grad():
        if not _is_doubly_stochastic(weight) and parametrization.promise is not Promise.NOTHING:
            draws = [parametrization.initial_logits(generator) for _ in range(weight[..., 0, 0].numel())]
            logits = torch.stack(draws).reshape(*weight.shape[:-2], -1).to(weight)
            weight.copy_(parametrization(logits))
    parametrize.register_parametrization(module, name, _FromLogits(parametrization))
    return module


class _FromLogits(nn.Module):
    """What torch calls to read the weight (`forward`) and to assign it (`right_inverse`)."""

    def __init__(self, parametrization: Parametrization) -> None:
        super().__init__()
        self.parametrization = parametrization

    def forward(self, logits: Tensor) -> Tensor:
        return self.parametrization(logits)

    def right_inverse(self, matrix: Tensor) -> Tensor:
        logits, distance = self.parametrization.fit(matrix)
        if (distance > FIT_TOLERANCE).any():
            warnings.warn(
                f"the closest matrix that {self.parametrization} can express is {distance.max():.2g} away from the one "
                f"assigned; a larger expressivity, Transportation or Permutations come closer",
                stacklevel=2,
            )
        return logits

    def extra_repr(self) -> str:
        return repr(self.parametrization)


def _is_doubly_stochastic(matrix: Tensor) -> bool:
    return bool((marginal_error(matrix.double()) <= FIT_TOLERANCE).all() and (matrix >= -FIT_TOLERANCE).all())
