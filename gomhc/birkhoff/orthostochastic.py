"""Go-mHC, the paper's method: the matrix that the free reals of a rotation make.

d = num_streams, s = expressivity, n = d * s, p = n (n - 1) / 2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gomhc import kernels
from gomhc.birkhoff import fitting
from gomhc.birkhoff.parametrization import Parametrization, require_positive
from gomhc.birkhoff.rotation_search import inverse_cayley, rotations_with_block_norms
from gomhc.birkhoff.rotations import ROTATIONS, RotationName
from gomhc.checks import require_choice
from gomhc.kernels import forms
from gomhc.kernels.plain_map import blockwise_squared_norm, saturated
from gomhc.kernels.precision import widened
from gomhc.shapes import Float

MOST_ROWS = 512
"""Largest number of rows of a rotation (n): it has 130,816 logits then, which take hundreds of megabytes in a layer."""
MOST_LOGITS = 2**22
"""Logits of the matrices that are made at once in the search for a start: a few hundred megabytes."""
COMPILED = {
    ("cayley", "triangle"): "go",
    ("cayley", "square"): "go-square",
    ("householder", "triangle"): "go-householder",
    ("givens", "triangle"): "go-givens",
}
"""Rotation and layout -> the kind of its compiled map."""


@dataclass(frozen=True, kw_only=True)
class Orthostochastic(Parametrization):
    r"""Blockwise squared norms of a rotation (go-mHC, eq. 5).

        Q = (I - A)(I + A)^{-1},    B_ij = (1/s) ||Q_ij||_F^2

    Rows and columns of Q have unit norm, so B is doubly stochastic to rounding. At zero logits B is the identity, and
    its Jacobian is zero, as at every permutation. So start near the identity, not on it (`initial_logits`).

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        expressivity: size of a block (s); 1 gives orthostochastic matrices, and larger values reach more of
            the polytope, though not all of it for d > 2.
        rotation: map from logits to the rotation: ``"cayley"``, ``"exponential"``, ``"householder"`` or ``"givens"``.
        layout: ``"triangle"`` for the n (n - 1) / 2 entries of A above the diagonal, or ``"square"`` for A = Z - Z^T
            with n² logits, as in the paper's code.

    Shape:
        - logits: (*batch, p) with p = n (n - 1) / 2, n = d s
        - returns: (*batch, d, d)

    Example::

        >>> go = gomhc.Orthostochastic(num_streams=4, expressivity=2)
        >>> matrix = go(torch.randn(10, go.num_logits))
        >>> torch.allclose(matrix.sum(-1), torch.ones(10, 4), atol=1e-6)
        True
    """

    key: ClassVar[str] = "go"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **{f"go-s{s}": {"expressivity": s} for s in (1, 2, 3)},
        **{f"go-square-s{s}": {"expressivity": s, "layout": "square"} for s in (1, 2, 3)},
    }

    expressivity: int = 2
    """Size of a block (s): 1 gives orthostochastic matrices, and larger values reach more of the polytope."""

    rotation: RotationName = "cayley"
    """The map from logits to the rotation."""

    layout: Literal["triangle", "square"] = "triangle"
    """Free reals: the n (n - 1) / 2 entries of A above the diagonal, or n² with A = Z - Z^T, as in the paper's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_expressivity(self, self.expressivity)
        require_choice("rotation", self.rotation, ROTATIONS)
        require_choice("layout", self.layout, ("triangle", "square"))

    @property
    def size(self) -> int:
        """Rows of the rotation (n)."""
        return self.num_streams * self.expressivity

    @property
    def num_logits(self) -> int:
        return self.size**2 if self.layout == "square" else self.size * (self.size - 1) // 2

    @property
    def covers_polytope(self) -> bool:
        return self.num_streams <= 2

    @property
    def kernel(self) -> str | None:
        kind = COMPILED.get((self.rotation, self.layout))
        return None if kind is None else forms.single(kind, self.num_streams, self.expressivity)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        if self.layout == "square":
            z = logits.unflatten(-1, (self.size, self.size))
            row, column = torch.triu_indices(self.size, self.size, offset=1, device=logits.device)
            logits = (z - z.mT)[..., row, column]
        if self.rotation == "cayley":
            return kernels.orthostochastic(logits, self.num_streams, self.expressivity)
        rotation = ROTATIONS[self.rotation](widened(saturated(logits)), self.size)
        return blockwise_squared_norm(rotation, self.num_streams).to(logits.dtype)

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        return near_identity_rotation(self, generator)

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        if self.rotation != "cayley":  # the others have no inverse here
            return super().closest_logits(matrix)
        a = inverse_cayley(rotations_with_block_norms(matrix, self.expressivity, matrix.dtype))
        row, column = torch.triu_indices(self.size, self.size, offset=1, device=matrix.device)
        inverted = (a / 2).flatten(-2) if self.layout == "square" else a[..., row, column]
        starts = torch.cat((inverted, fitting.random_starts(self.num_logits, matrix)), dim=1)
        return fitting.closest_logits(self.matrix, starts, matrix)


def require_expressivity(parametrization: Parametrization, expressivity: int) -> None:
    """Raise a ValueError unless s is a whole number and the rotation is not too large to compute with."""
    require_positive(parametrization, "expressivity")
    rows = parametrization.num_streams * expressivity
    if rows > MOST_ROWS:
        raise ValueError(
            f"num_streams * expressivity must be at most {MOST_ROWS}, got {parametrization.num_streams} * "
            f"{expressivity} = {rows:,}; use a smaller expressivity, or a Kronecker product"
        )


def near_identity_rotation(parametrization: Parametrization, generator: torch.Generator | None) -> Tensor:
    """Gaussian logits, scaled to where the leak of their image first is the one that is asked for.

    Along some directions it never gets there, as where the rotation turns mostly inside blocks: then another is drawn.
    """
    device = generator.device if generator is not None else torch.device("cpu")
    shape, leak = (parametrization.num_logits,), parametrization.initial_leak
    for _ in range(1000):
        direction = torch.randn(shape, generator=generator, dtype=torch.float64, device=device)
        low, high = 1e-6 if leak > 1e-6 else 1e-12, 1e2
        for _ in range(4):  # each narrows the interval of the first crossing by a hundred or more
            scales = torch.logspace(math.log10(low), math.log10(high), 200, dtype=torch.float64, device=device)
            crossed = (_leaks(parametrization, direction, scales) >= leak).nonzero()
            if len(crossed) == 0 or crossed[0] == 0:
                break
            low, high = scales[crossed[0, 0] - 1].item(), scales[crossed[0, 0]].item()
        else:
            return high * direction
        if parametrization.num_streams == 1:
            return direction
    raise RuntimeError(f"no direction reaches the leak of {parametrization}; use another initial_leak")


def _leaks(parametrization: Parametrization, direction: Tensor, scales: Tensor) -> Tensor:
    """The leak of the image of each multiple of `direction`; large matrices are made a few at a time."""
    parts = scales.split(max(1, MOST_LOGITS // max(1, len(direction))))
    images = (parametrization.matrix(part[:, None] * direction) for part in parts)
    return 1 - torch.cat([image.diagonal(dim1=-2, dim2=-1).mean(-1) for image in images])
