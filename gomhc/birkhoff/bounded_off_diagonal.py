"""ITO-HC: the identity plus signed entries off the diagonal, which are bounded.

d = num_streams, b = bound
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.promise import Promise
from gomhc.checks import require_number
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class BoundedOffDiagonal(Parametrization):
    r"""The identity plus bounded signed entries off the diagonal (ITO-HC): a stream keeps all of itself.

        B_ii = 1,    B_ij = b / (d - 1) tanh(z_ij)  for i != j

    The absolute values of a row or column off the diagonal sum to at most b, so ||B||_2 <= 1 + b. Rows and columns of B
    do not sum to one. It starts as the identity, where its Jacobian does not vanish.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: ignored, because the matrix starts as the identity.
        bound: largest absolute sum off the diagonal (b), for each row and column.

    Shape:
        - logits: (*batch, p) with p = d (d - 1), row by row
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.BoundedOffDiagonal(num_streams=2, bound=0.5)(torch.tensor([torch.inf, -torch.inf]))
        tensor([[ 1.0000,  0.5000],
                [-0.5000,  1.0000]])
    """

    key: ClassVar[str] = "off-diagonal"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"ito-hc": {}}
    starts_at_identity: ClassVar[bool] = True

    bound: float = 0.5
    """Largest absolute sum off the diagonal (b), for each row and column."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("bound", self.bound, above=0)

    @property
    def num_logits(self) -> int:
        return self.num_streams * (self.num_streams - 1)

    @property
    def promise(self) -> Promise:
        return Promise(norm=1 + self.bound)

    @property
    def kernel(self) -> str | None:
        return forms.single("off-diagonal", self.num_streams, real=self.bound)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        d = self.num_streams
        bounded = self.bound / max(1, d - 1) * logits.tanh()
        # Not into an expanded identity: torch.compile (2.13) would write all matrices to the same place.
        zeros = logits.new_zeros(*logits.shape[:-1], d * d)
        off_diagonal = zeros.index_copy(-1, self._places(logits.device), bounded).unflatten(-1, (d, d))
        return torch.eye(d, dtype=logits.dtype, device=logits.device) + off_diagonal

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        share = matrix.flatten(-2)[:, self._places(matrix.device)] * max(1, self.num_streams - 1) / self.bound
        most = 1 - torch.finfo(torch.float32).eps
        return share.clamp(-most, most).atanh()

    def _places(self, device: torch.device) -> Tensor:
        """Places off the diagonal in the flattened matrix: d between each two of the diagonal."""
        d = self.num_streams
        return torch.arange(1, d * d, device=device).reshape(d - 1, d + 1)[:, :-1].flatten()
