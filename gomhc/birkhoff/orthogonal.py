"""JPmHC and oHC: a rotation as the mixing matrix itself.

d = num_streams
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gomhc.birkhoff import fitting
from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.promise import Promise
from gomhc.checks import require_choice
from gomhc.kernels import forms
from gomhc.kernels.plain_map import cayley, saturated, skew
from gomhc.kernels.precision import widened
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Orthogonal(Parametrization):
    r"""A rotation (JPmHC, oHC): it preserves the norms of signals and gradients, but row and column sums are not one.

        Q = (I - A)(I + A)^{-1}                     A skew-symmetric (``"cayley"``, JPmHC)
        Q x = a x conj(b),  a = 1 + z_1, b = 1 + z_2, both normed    x, a, b quaternions (``"quaternions"``, oHC)

    Every rotation of four streams is a product of quaternions. It starts at zero logits, which give the identity. There
    its Jacobian does not vanish, and row and column sums are one.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: ignored, because the matrix starts as the identity.
        rotation: map from logits to the rotation: ``"cayley"``, or ``"quaternions"`` for four streams.

    Shape:
        - logits: (*batch, p) with p = d (d - 1) / 2, or 8 for quaternions
        - returns: (*batch, d, d)

    Example::

        >>> matrix = gomhc.Orthogonal(num_streams=4)(torch.randn(6))
        >>> torch.allclose(matrix @ matrix.mT, torch.eye(4), atol=1e-6)
        True
    """

    key: ClassVar[str] = "orthogonal"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"jpmhc": {}, "ohc": {"rotation": "quaternions"}}
    starts_at_identity: ClassVar[bool] = True

    rotation: Literal["cayley", "quaternions"] = "cayley"
    """The map from logits to the rotation; quaternions need four streams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("rotation", self.rotation, ("cayley", "quaternions"))
        if self.rotation == "quaternions" and self.num_streams != 4:
            raise ValueError(f"quaternions need num_streams=4, got {self.num_streams}; use rotation=cayley")

    @property
    def num_logits(self) -> int:
        return 8 if self.rotation == "quaternions" else self.num_streams * (self.num_streams - 1) // 2

    @property
    def promise(self) -> Promise:
        return Promise(norm=1, isometric=True)

    @property
    def kernel(self) -> str | None:
        return forms.single("quaternions" if self.rotation == "quaternions" else "orthogonal", self.num_streams)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        wide = widened(saturated(logits))
        if self.rotation == "cayley":
            return cayley(skew(wide, self.num_streams)).to(logits.dtype)
        one = torch.eye(4, dtype=wide.dtype, device=wide.device)[0]
        quaternion = one + wide.unflatten(-1, (2, 4))
        left, right = (quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)).unbind(-2)
        return (left_product(left) @ right_product(right).mT).to(logits.dtype)

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Searches from the identity and from random logits: a target need not be orthogonal."""
        starts = fitting.random_starts(self.num_logits, matrix)
        starts = torch.cat((starts, torch.zeros_like(starts[:, :1])), dim=1)
        return fitting.closest_logits(self.matrix, starts, matrix)


def left_product(a: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4 4"]:
    """The matrix of x -> a x for a quaternion a."""
    w, x, y, z = a.unbind(-1)
    rows = ((w, -x, -y, -z), (x, w, -z, y), (y, z, w, -x), (z, -y, x, w))
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def right_product(b: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4 4"]:
    """The matrix of x -> x b for a quaternion b; its transpose is that of conj(b)."""
    w, x, y, z = b.unbind(-1)
    rows = ((w, -x, -y, -z), (x, w, z, -y), (y, -z, w, x), (z, y, -x, w))
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
