"""No mixing at all: the baseline that everything must beat. d = num_streams"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Identity(Parametrization):
    """B = I, whatever the logits, of which there are none; its initial leak is zero."""

    key: ClassVar[str] = "identity"

    @property
    def num_logits(self) -> int:
        return 0

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        identity = torch.eye(self.num_streams, dtype=logits.dtype, device=logits.device)
        return identity.expand(*logits.shape[:-1], -1, -1).clone()
