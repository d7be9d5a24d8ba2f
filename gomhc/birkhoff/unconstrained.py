"""HC: the logits are the matrix. d = num_streams"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization, Promise
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Unconstrained(Parametrization):
    """B = mat(z), any matrix at all (HC): nothing bounds what it does to a deep network."""

    key: ClassVar[str] = "unconstrained"

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

    def flops(self, num_channels: int) -> float:
        return 0.0
