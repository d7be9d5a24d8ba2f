"""osHC: rows that are distributions, with no constraint on columns.

d = num_streams
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.promise import Promise
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class RowStochastic(Parametrization):
    r"""A softmax of each row (osHC): new streams are averages of the old ones, but their mean is not preserved.

        B_ij = exp(z_ij) / sum_k exp(z_ik)

    Columns may sum to anything up to d, so a stream can be copied to all others. ||B||_2 <= sqrt(d).

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p) with p = d²
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.RowStochastic(num_streams=4)(torch.randn(10, 16)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "rows"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"oshc": {}}

    @property
    def num_logits(self) -> int:
        return self.num_streams**2

    @property
    def promise(self) -> Promise:
        return Promise(nonnegative=True, unit_rows=True, norm=math.sqrt(self.num_streams))

    @property
    def covers_polytope(self) -> bool:
        return True

    @property
    def kernel(self) -> str | None:
        return forms.single("rows", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        return logits.unflatten(-1, (self.num_streams, self.num_streams)).softmax(-1)

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        return matrix.clamp(min=torch.finfo(torch.float32).tiny).log().flatten(-2)
