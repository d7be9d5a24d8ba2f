"""The module through which torch.nn.utils.parametrize reads and assigns a weight that a mixing computes from logits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization
from gomhc.birkhoff.parametrization import FIT_TOLERANCE


class FromLogits(nn.Module):
    """Parametrization of a weight for `torch.nn.utils.parametrize`: logits to weight, and back on assignment.

    :func:`gomhc.doubly_stochastic` registers it.

    Args:
        mixing: the map from logits to the weight.
        initial: initial logits, which the first assignment returns (registering assigns the weight once); None to fit
            the logits to the weight.

    Shape:
        - input: logits (*batch, p)
        - output: the weight (*batch, d, d)

    Example::

        >>> gomhc.layers.FromLogits(gomhc.Transportation(num_streams=3), None)(torch.zeros(4)).shape
        torch.Size([3, 3])
    """

    def __init__(self, mixing: Parametrization, initial: Tensor | None) -> None:
        super().__init__()
        self.mixing = mixing
        self.initial = initial  # the first assignment, which registering makes, returns these

    def forward(self, logits: Tensor) -> Tensor:
        return self.mixing(logits)

    def right_inverse(self, matrix: Tensor) -> Tensor:
        if self.initial is not None:
            initial, self.initial = self.initial, None
            return initial
        logits, distance = self.mixing.fit(matrix)
        if (distance > max(FIT_TOLERANCE, matrix.shape[-1] * torch.finfo(matrix.dtype).eps)).any():
            warnings.warn(
                f"the closest matrix that {self.mixing} can express is {distance.max():.2g} away from the assigned "
                f"one; use a larger expressivity, Transportation or Permutations to come closer",
                stacklevel=2,
            )
        return logits

    def extra_repr(self) -> str:
        return repr(self.mixing)
