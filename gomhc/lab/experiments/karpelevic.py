"""Where can eigenvalues of doubly stochastic matrices lie? (fig. 2)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff import SAMPLERS
from gomhc.birkhoff.karpelevic import karpelevic_boundary, polygon_excess
from gomhc.birkhoff.permutation_matrices import permutation_matrices
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select


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
            "region_beyond_polygons": float(polygon_excess(boundary, d).max()),
            "pairs_beyond_polygons": pair_excess(d),
        }


def pair_excess(num_streams: int, num_weights: int = 24) -> float:
    """How far beyond the polygons eigenvalues of mixtures of two permutations lie; the first one up to its cycles."""
    vertices = permutation_matrices(num_streams, torch.zeros(0, dtype=torch.float64)).numpy()
    powers = [np.linalg.matrix_power(vertices, k) for k in range(num_streams + 1)]
    cycles = zip(*np.trace(powers, axis1=2, axis2=3), strict=True)  # the traces of its powers tell its cycles
    first_ones = dict(zip(cycles, vertices, strict=True)).values()
    weights = np.arange(1, num_weights)[:, None, None, None] / num_weights
    mixtures = [weights * first + (1 - weights) * vertices for first in first_ones]
    return max(float(polygon_excess(np.linalg.eigvals(mixture), num_streams).max()) for mixture in mixtures)


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
        beyond = {record.configuration["num_streams"]: record.metrics["pairs_beyond_polygons"] for record in records}
        for claim, streams in (("fig2-union", (3, 4)), ("fig2-union-5", (5,))):
            if all(d in beyond for d in streams):
                text = ", ".join(f"{beyond[d]:.4f} (d = {d})" for d in streams)
                found[claim] = Finding(max(beyond[d] for d in streams), f"{text}, mixtures of any two permutations")
        for record in select(records, num_streams=4):
            value = record.metrics["region_beyond_polygons"]
            found["fig2-karpelevic"] = Finding(value, f"the Karpelevič region of d = 4 exceeds it by {value:.3f}")
        return found
