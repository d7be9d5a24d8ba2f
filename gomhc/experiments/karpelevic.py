"""Where can eigenvalues of doubly stochastic matrices lie? (fig. 2)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff import SAMPLERS
from gomhc.birkhoff.karpelevic import karpelevic_boundary
from gomhc.experiments.experiment import Experiment, Run, Scale
from gomhc.results.claim import Finding
from gomhc.results.record import Record, select


@dataclass(frozen=True, kw_only=True)
class RegionRun(Run):
    """The boundary of the region, and eigenvalues of random matrices that must lie inside."""

    num_streams: int
    """d"""
    num_samples: int = 2000
    """Random matrices."""
    seed: int = 0
    """Of them."""

    def execute(self) -> dict[str, Any]:
        d, generator = self.num_streams, torch.Generator().manual_seed(self.seed)
        matrices = torch.cat(
            [SAMPLERS[name](d, self.num_samples, generator) for name in ("permutation-pair", "haar-orthogonal")]
        )
        eigenvalues = torch.linalg.eigvals(matrices).numpy().ravel()
        boundary = karpelevic_boundary(d)
        kept = boundary[:: max(1, len(boundary) // 200)]
        return {
            "boundary": [[point.real, point.imag] for point in [*kept.tolist(), complex(boundary[-1])]],
            "largest_imaginary_part": float(np.abs(eigenvalues.imag).max()),
            "beyond_polygons": float(distance_from_polygons(boundary, d).max()),
        }


def distance_from_polygons(points: np.ndarray, num_streams: int) -> np.ndarray:
    """How far each point lies outside of the union of regular polygons with up to d sides and the segment [-1, 1]."""
    turn = np.linspace(0, np.pi, 4001)
    radius = np.max([np.zeros_like(turn), *(_polygon_radius(turn, k) for k in range(3, num_streams + 1))], axis=0)
    union = np.concatenate((radius * np.exp(1j * turn), np.linspace(-1, 1, 4001)))
    own = np.interp(np.angle(points), turn, radius)
    return np.where(np.abs(points) <= own + 1e-9, 0.0, np.abs(points[:, None] - union).min(1))


def _polygon_radius(angle: np.ndarray, sides: int) -> np.ndarray:
    """Of the regular polygon with a corner at 1."""
    return np.cos(np.pi / sides) / np.cos(angle % (2 * np.pi / sides) - np.pi / sides)


class Karpelevic(Experiment):
    """The Karpelevič regions of two to five streams."""

    name = "karpelevic"
    title = "Karpelevič regions"
    paper = (
        "Fig. 2: eigenvalues of d × d stochastic matrices fill a region of the unit disc; for d = 2 it is a line, and "
        "the region of d is said to be the union of that of d - 1 and the regular polygon with d sides."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [RegionRun(num_streams=d) for d in (2, 3, 4, 5)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for record in select(records, num_streams=2):
            value = record.metrics["largest_imaginary_part"]
            found["fig2-line"] = Finding(value, f"largest imaginary part {value:.1g}")
        for record in select(records, num_streams=4):
            value = record.metrics["beyond_polygons"]
            found["fig2-union"] = Finding(value, f"the boundary of d = 4 exceeds the polygons by {value:.4f}")
        return found
