"""mHC-proj: the doubly stochastic matrix that is closest to d² free reals.

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.interior_point import active_set
from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.transport_system import TransportSystem, marginals, spread
from gomhc.kernels import forms
from gomhc.kernels.plain_map import saturated
from gomhc.kernels.precision import widened
from gomhc.shapes import Float

NUM_REFINEMENTS = 3
"""Solutions of the final system: each multiplies the error by that of the damping, the root of eps."""


@dataclass(frozen=True, kw_only=True)
class PolytopeProjection(Parametrization):
    r"""The Euclidean projection onto the Birkhoff polytope (mHC-proj).

        B = argmin ||B - Z||_F^2  over doubly stochastic B  =  max(0, Z + u 1^T + 1 v^T)

    An interior-point method finds which entries are positive. Given these, u and v solve a linear system, and so does
    the gradient: it is implicit and exact, and backward keeps none of the iterations. Zero entries get no gradient.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = d²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.PolytopeProjection(num_streams=2)(torch.tensor([1.0, 0.5, 0.5, 1.0]))
        tensor([[0.7500, 0.2500],
                [0.2500, 0.7500]])
    """

    key: ClassVar[str] = "projection"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mhc-proj": {}}

    @property
    def num_logits(self) -> int:
        return self.num_streams**2

    @property
    def covers_polytope(self) -> bool:
        return True

    @property
    def kernel(self) -> str | None:
        return forms.single("projection", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        z = widened(saturated(logits)).unflatten(-1, (self.num_streams, self.num_streams))
        positive, multipliers = active_set(z.detach())
        system = TransportSystem(positive, damping=torch.finfo(z.dtype).eps ** 0.5)
        for _ in range(NUM_REFINEMENTS):
            multipliers = multipliers + system.solve(1 - marginals(positive * (z + spread(multipliers))))
        near = positive * (z + spread(multipliers))  # sums are off by the rounding of z, which may be large
        near = near + positive * spread(system.solve(1 - marginals(near)))
        return near.clamp(min=0).to(logits.dtype)

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        return matrix.flatten(-2)
