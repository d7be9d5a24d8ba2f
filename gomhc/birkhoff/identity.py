"""No mixing at all: the baseline that everything must beat. d = num_streams"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Identity(Parametrization):
    """The identity, B = I: streams are not mixed. It has no logits.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: ignored, because the matrix starts as the identity.

    Shape:
        - logits: (*batch, p) with p = 0
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.Identity(num_streams=2)(torch.empty(0))
        tensor([[1., 0.],
                [0., 1.]])
    """

    key: ClassVar[str] = "identity"
    starts_at_identity: ClassVar[bool] = True

    @property
    def num_logits(self) -> int:
        return 0

    @property
    def kernel(self) -> str | None:
        return forms.single("identity", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        identity = torch.eye(self.num_streams, dtype=logits.dtype, device=logits.device)
        return identity.expand(*logits.shape[:-1], -1, -1).clone()
