"""HC: the logits are the matrix. d = num_streams"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.promise import Promise
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Unconstrained(Parametrization):
    """Any matrix, B = mat(z) (HC): nothing bounds the gain of a deep network.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = d²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Unconstrained(num_streams=2)(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor([[1., 2.],
                [3., 4.]])
    """

    key: ClassVar[str] = "unconstrained"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"hc": {}}

    @property
    def num_logits(self) -> int:
        return self.num_streams**2

    @property
    def promise(self) -> Promise:
        return Promise.NOTHING

    @property
    def covers_polytope(self) -> bool:
        return True

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        return logits.unflatten(-1, (self.num_streams, self.num_streams))

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        return matrix.flatten(-2)
