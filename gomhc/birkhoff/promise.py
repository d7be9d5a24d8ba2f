"""What a parametrization promises about its matrices; tests, tables and fits use it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What holds for the matrices of a parametrization at every value of the logits.

    Args:
        nonnegative: whether no entry is below zero.
        unit_rows: whether every row sums to one.
        unit_columns: whether every column sums to one.
        to_rounding: whether the sums are one to rounding, for logits of up to 1e4 and more; otherwise they have an
            error, which `gomhc.birkhoff.measures.marginal_error` measures.
        norm: largest spectral norm; infinite if there is no bound.
        isometric: whether every singular value is one, so that no signal grows or shrinks.

    Example::

        >>> gomhc.Sinkhorn(num_streams=4).promise == gomhc.Promise.APPROXIMATE
        True
        >>> str(gomhc.Orthogonal(num_streams=4).promise)
        'singular values one'
    """

    NOTHING: ClassVar[Promise]
    APPROXIMATE: ClassVar[Promise]
    """Entries are nonnegative, and row and column sums are one up to an error."""
    EXACT: ClassVar[Promise]
    """Doubly stochastic to rounding: nonnegative entries, row and column sums of one, and so a spectral norm of one."""

    nonnegative: bool = False
    """Whether no entry is below zero."""
    unit_rows: bool = False
    """Whether every row sums to one."""
    unit_columns: bool = False
    """Whether every column sums to one."""
    to_rounding: bool = True
    """Whether those sums are one to rounding; otherwise they have an error."""
    norm: float = math.inf
    """Largest spectral norm."""
    isometric: bool = False
    """Whether every singular value is one."""

    def times(self, other: Promise) -> Promise:
        """Return what holds for a Kronecker product of such matrices."""
        return Promise(
            nonnegative=self.nonnegative and other.nonnegative,
            unit_rows=self.unit_rows and other.unit_rows,
            unit_columns=self.unit_columns and other.unit_columns,
            to_rounding=self.to_rounding and other.to_rounding,
            norm=self.norm * other.norm,
            isometric=self.isometric and other.isometric,
        )

    def averaged(self) -> Promise:
        """Return what holds for a convex combination of such matrices: everything except the singular values."""
        return replace(self, isometric=False)

    @property
    def of_entries(self) -> Promise:
        """The part of the promise about entries and sums."""
        return replace(self, norm=math.inf, isometric=False)

    def admits(self, matrix: Float[Tensor, "*batch d d"], tolerance: float) -> bool:
        """Return whether all matrices keep the promise, within a tolerance."""
        rows, columns = matrix.sum(-1), matrix.sum(-2)
        if (
            (self.nonnegative and not (matrix >= -tolerance).all())
            or (self.unit_rows and not ((rows - 1).abs() <= tolerance).all())
            or (self.unit_columns and not ((columns - 1).abs() <= tolerance).all())
        ):
            return False
        if not self.isometric and not math.isfinite(self.norm):
            return True
        if not matrix.isfinite().all():
            return False
        values = torch.linalg.svdvals(matrix)
        lowest = 1 if self.isometric else 0
        return bool((values <= self.norm + tolerance).all() and (values >= lowest - tolerance).all())

    @property
    def shape(self) -> str:
        """The promise about entries and sums, in words."""
        if self.nonnegative and self.unit_rows and self.unit_columns:
            return "doubly stochastic"
        sums = {(True, True): "unit sums", (True, False): "unit rows", (False, True): "unit columns"}
        words = ["nonnegative"] * self.nonnegative
        return ", ".join([*words, *filter(None, [sums.get((self.unit_rows, self.unit_columns))])])

    def __str__(self) -> str:
        names = {Promise.NOTHING: "nothing", Promise.APPROXIMATE: "approximate", Promise.EXACT: "exact"}
        if self in names:
            return names[self]
        norm = "singular values one" if self.isometric else f"norm at most {self.norm:.3g}"
        approximate = "approximately" if not self.to_rounding and self.shape else ""
        return ", ".join(filter(None, (approximate, self.shape, norm if math.isfinite(self.norm) else "")))


Promise.NOTHING = Promise()
Promise.APPROXIMATE = Promise(nonnegative=True, unit_rows=True, unit_columns=True, to_rounding=False)
Promise.EXACT = Promise(nonnegative=True, unit_rows=True, unit_columns=True, norm=1)
