"""Regions of the unit disc that eigenvalues of doubly stochastic matrices can reach (fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gomhc.birkhoff import SAMPLERS
from gomhc.birkhoff.karpelevic import karpelevic_boundary, polygon_excess
from gomhc.birkhoff.permutation_matrices import permutation_matrices
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.spectrum_plots import outline
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class RegionRun(Run):
    """The boundary of the region, and eigenvalues of random matrices that must lie inside."""

    num_streams: int
    """d"""
    num_samples: int = 2000
    """Random matrices."""
    seed: int = 0
    """Seed of the random matrices."""

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
    """Largest distance beyond the polygons of an eigenvalue of a mixture of two permutations.

    Renaming the streams changes no eigenvalue, so one first permutation of each cycle type is enough.
    """
    vertices = permutation_matrices(num_streams, torch.zeros(0, dtype=torch.float64)).numpy()
    powers = [np.linalg.matrix_power(vertices, k) for k in range(num_streams + 1)]
    cycles = zip(*np.trace(powers, axis1=2, axis2=3), strict=True)  # the traces of its powers tell its cycles
    first_ones = dict(zip(cycles, vertices, strict=True)).values()
    weights = np.arange(1, num_weights)[:, None, None, None] / num_weights
    mixtures = [weights * first + (1 - weights) * vertices for first in first_ones]
    return max(float(polygon_excess(np.linalg.eigvals(mixture), num_streams).max()) for mixture in mixtures)


class Fig2(Experiment):
    """The Karpelevič regions of two to five streams."""

    name = "karpelevic"
    title = "Karpelevič regions"
    paper = (
        "Fig. 2: eigenvalues of d × d stochastic matrices fill a region of the unit disc; for d = 2 it is a line, and "
        "the region of d is said to be the union of that of d - 1 and the regular polygon with d sides."
    )
    order = 30
    claims = (
        Claim("fig2-line", "fig. 2", "a line", "The spectrum of two streams is real.",
              "Largest |imaginary part|, d = 2.", Rule(at_most=1e-9)),
        Claim("fig2-union", "fig. 2", "union", "The spectrum of B_d is that of B_(d - 1) and the d-gon, d ≤ 4.",
              "Largest modulus beyond the polygons of an eigenvalue of a mixture of two permutations, d = 3, 4.",
              Rule(at_most=1e-9)),
        Claim("fig2-union-5", "fig. 2", "union", "The spectrum of B_5 is that of B_4 and the pentagon.",
              "The same for d = 5.", Rule(at_most=1e-9)),
        Claim("fig2-karpelevic", "fig. 2", "union",
              "The union of polygons is the Karpelevič region of stochastic matrices.",
              "Largest modulus of that region beyond the polygons, d = 4.", Rule(at_most=1e-3)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [RegionRun(num_streams=d) for d in (2, 3, 4, 5)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        for record in select(records, num_streams=2):
            value = record.metrics["largest_imaginary_part"]
            findings["fig2-line"] = Finding(value, f"largest imaginary part {value:.1g}")
        beyond = {record.configuration["num_streams"]: record.metrics["pairs_beyond_polygons"] for record in records}
        for claim, streams in (("fig2-union", (3, 4)), ("fig2-union-5", (5,))):
            if all(d in beyond for d in streams):
                text = ", ".join(f"{beyond[d]:.4f} (d = {d})" for d in streams)
                findings[claim] = Finding(max(beyond[d] for d in streams), f"{text}, mixtures of any two permutations")
        for record in select(records, num_streams=4):
            value = record.metrics["region_beyond_polygons"]
            findings["fig2-karpelevic"] = Finding(value, f"the Karpelevič region of d = 4 exceeds it by {value:.3f}")
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A disc for each d."""
        caption = (
            "The Karpelevič region (blue) in the unit circle, roots of unity up to order d (red), and the union of "
            "regular polygons with up to d sides (dashed): from d = 4 on the region is a little larger than the union "
            "that the paper's caption describes."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption)]

    def _draw(self, records: Sequence[Record]) -> Figure:
        ordered = sorted(records, key=lambda record: record.configuration["num_streams"])
        figure = new_figure(9.6, 2.8)
        for axes, record in zip(np.atleast_1d(figure.subplots(1, len(ordered))), ordered, strict=True):
            d = record.configuration["num_streams"]
            x, y = np.array(record.metrics["boundary"]).T
            axes.fill(np.r_[x, x[::-1]], np.r_[y, -y[::-1]], color="#33BBEE", alpha=0.35, linewidth=0)
            axes.plot(np.r_[x, x[::-1]], np.r_[y, -y[::-1]], color="#0077BB", linewidth=1.2)
            outline(axes)
            for sides in range(3, d + 1):
                corners = np.exp(2j * np.pi * np.arange(sides + 1) / sides)
                axes.plot(corners.real, corners.imag, "--", color=INK, linewidth=0.6)
            roots = np.exp(2j * np.pi * np.array([a / b for b in range(1, d + 1) for a in range(b)]))
            axes.plot(roots.real, roots.imag, "o", color="#CC3311", markersize=4)
            axes.set_title(f"d = {d}")
        return figure
