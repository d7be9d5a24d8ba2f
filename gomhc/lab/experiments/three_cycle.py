r"""Which part of the triangle of the 3-cycle do orthostochastic matrices cover? (app. D)

    c_k = Tr((σ^k)^T B) / 3,    x = sum_k c_k v_k,    v_k = (sin 2πk/3, cos 2πk/3)

Samples are drawn in pieces and counted on a grid, so a hundred million of them take no memory. d = 3, s = expressivity
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gomhc.birkhoff import SAMPLERS, Orthostochastic
from gomhc.birkhoff.permutation_matrices import permutation_matrices
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.spectrum_plots import heat
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.spectra import ReachRun
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHUNK = 100_000
NUM_CELLS = 121
"""Cells on a side of the grid."""
SCALES = (0.1, 0.3, 1.0, 3.0)
"""Scales of the logits, in turn: small ones lie near the identity, which random rotations rarely approach."""
NUM_SHOWN = 700
"""Matrices whose coordinates are kept for the views in three dimensions."""


@dataclass(frozen=True, kw_only=True)
class SliceRun(Run):
    """Where random orthostochastic matrices lie."""

    expressivity: int
    """s"""
    num_samples: int = 100_000_000
    """Random matrices."""
    num_targets: int = 100_000
    """Points to which eigenvalues are pulled, for the share of the spectrum beside it."""
    seed: int = 0
    """Seed of the random matrices."""

    @property
    def full_size(self) -> bool:
        return self.num_samples >= 10**8

    @property
    def cost(self) -> float:
        return 3e-7 * self.num_samples * self.expressivity + 1e-3 * self.num_targets

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        go = Orthostochastic(num_streams=3, expressivity=self.expressivity)
        counts = np.zeros((NUM_CELLS, NUM_CELLS), dtype=np.int64)
        for chunk in range(self.num_samples // CHUNK):
            logits = SCALES[chunk % len(SCALES)] * torch.randn(CHUNK, go.num_logits, generator=generator)
            matrices = go.matrix(logits).roll(chunk // len(SCALES) % 3, dims=2)  # the set is closed under permutations
            counts += grid_counts(project(matrices))
        reach = ReachRun(method=f"go-s{self.expressivity}", num_streams=3, num_targets=self.num_targets, seed=self.seed)
        shown = SAMPLERS["haar-orthogonal"](3, NUM_SHOWN, generator, expressivity=self.expressivity)
        return {
            "histogram": counts.tolist(),
            "share": covered_share(counts),
            "spectrum_share": reach.execute()["share"],
            "points": view(shown).round(decimals=3).tolist(),
            "vertices": view(permutation_matrices(3, torch.zeros(0, dtype=torch.float64))).tolist(),
        }


def project(matrices: torch.Tensor) -> torch.Tensor:
    """Coordinates (samples, 2) in the plane of the 3-cycle."""
    identity = torch.eye(3, dtype=matrices.dtype)
    powers = torch.stack([identity.roll(k, dims=1) for k in range(3)])
    angle = 2 * torch.pi * torch.arange(3, dtype=matrices.dtype) / 3
    corners = torch.stack((angle.sin(), angle.cos()), dim=1)
    return (matrices.flatten(1) @ powers.flatten(1).T / 3) @ corners


def grid_counts(points: torch.Tensor) -> np.ndarray:
    """How many points lie in each cell of the square from -1 to 1."""
    cells = ((points.double() + 1) / 2 * NUM_CELLS).long().clamp(0, NUM_CELLS - 1)
    return torch.bincount(cells[:, 0] * NUM_CELLS + cells[:, 1], minlength=NUM_CELLS**2).reshape(NUM_CELLS, -1).numpy()


def covered_share(counts: np.ndarray) -> float:
    """Share of the cells whose centre lies in the triangle that are hit."""
    centres = (np.arange(NUM_CELLS) + 0.5) / NUM_CELLS * 2 - 1
    x, y = np.meshgrid(centres, centres, indexing="ij")
    normals = [np.array([np.sin(a), np.cos(a)]) for a in np.pi + 2 * np.pi * np.arange(3) / 3]
    inside = np.all([normal[0] * x + normal[1] * y <= 0.5 for normal in normals], axis=0)
    return float((inside & (counts > 0)).sum() / inside.sum())


def view(matrices: torch.Tensor) -> torch.Tensor:
    """Coordinates (samples, 4) in an orthonormal basis of the matrices of zero sums: the polytope of d = 3 has four."""
    helmert = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]], dtype=torch.float64)
    helmert = helmert / helmert.norm(dim=1, keepdim=True)
    return torch.einsum("ai, nij, bj -> nab", helmert, matrices, helmert).flatten(1)


class ThreeCycle(Experiment):
    """The plane of the 3-cycle, and views of the polytope."""

    name = "three-cycle"
    title = "The polytope seen in the plane of the 3-cycle"
    paper = (
        "App. D: 1e8 matrices of d = 3, projected on the triangle of I, σ, σ²: coverage for s = 1 and 2 is that of "
        "the spectrum within the Karpelevič region. Views in three dimensions show what s = 1 covers of the polytope."
    )
    order = 210
    claims = (
        Claim("slice-matches", "app. D", "matches", "Coverage of the 3-cycle slice is that of the spectrum.",
              "Largest difference of the two shares, s = 1, 2.", Rule(at_most=0.05)),
        Claim("slice-s2", "app. D", "larger", "s = 2 covers more of the slice than s = 1.",
              "Covered share: s = 2 minus s = 1.", Rule(at_least=0.01)),
    )  # fmt: skip

    VIEWS = ((0, 1, 2), (0, 3, 1))
    """The three of the four coordinates that each view shows."""

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_samples": 10_000_000, "num_targets": 5000} if scale == "quick" else {}
        return [SliceRun(expressivity=s, **sizes) for s in (1, 2)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        by_size = {record.configuration["expressivity"]: record.metrics for record in records}
        if set(by_size) != {1, 2}:
            return {}
        slices = {s: metrics["share"] for s, metrics in by_size.items()}
        apart = max(abs(slices[s] - by_size[s]["spectrum_share"]) for s in (1, 2))
        text = "; ".join(f"s = {s}: {slices[s]:.1%}, spectrum {by_size[s]['spectrum_share']:.1%}" for s in (1, 2))
        return {
            "slice-matches": Finding(apart, text),
            "slice-s2": Finding(slices[2] - slices[1], f"{slices[2]:.1%} (s = 2) against {slices[1]:.1%} (s = 1)"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Both figures."""
        triangle = (
            "Random s-orthostochastic matrices of d = 3 projected on the plane of the 3-cycle: darker cells hold more. "
            "The triangle is the projection of the polytope, the curve a hypocycloid."
        )
        views = (
            "Matrices with s = 1 (blue) and s = 2 (orange) inside the polytope of d = 3, which has four dimensions: "
            "two choices of three of them. Dots: the six permutations, any two of which are joined by an edge."
        )
        return [
            Plot(draw=lambda: self._draw_triangle(records), caption=triangle),
            Plot(draw=lambda: self._draw_views(records), caption=views),
        ]

    def _draw_triangle(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(7, 3.6)
        ordered = sorted(records, key=lambda record: record.configuration["expressivity"])
        for axes, record in zip(np.atleast_1d(figure.subplots(1, len(ordered))), ordered, strict=True):
            heat(axes, np.array(record.metrics["histogram"]))
            angle = 2 * np.pi * np.arange(4) / 3
            axes.plot(np.sin(angle), np.cos(angle), color=INK, linewidth=1)
            turn = np.linspace(0, 2 * np.pi, 241)
            axes.plot(
                (2 * np.sin(turn) - np.sin(2 * turn)) / 3,
                (2 * np.cos(turn) + np.cos(2 * turn)) / 3,
                color="#CC3311",
                linewidth=1,
            )
            axes.set(
                title=f"s = {record.configuration['expressivity']}", xlim=(-1, 1), ylim=(-0.6, 1.05), aspect="equal"
            )
            axes.set_axis_off()
        return figure

    def _draw_views(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8, 4)
        for place, view in enumerate(self.VIEWS, start=1):
            axes = figure.add_subplot(1, 2, place, projection="3d")
            for s, color in ((2, "#EE7733"), (1, "#0077BB")):
                for record in select(records, expressivity=s):
                    points = np.array(record.metrics["points"])[:, view]
                    axes.scatter(*points.T, s=2, color=color, alpha=0.5, rasterized=True)
                    vertices = np.array(record.metrics["vertices"])[:, view]
            for a, b in combinations(vertices, 2):
                axes.plot(*zip(a, b, strict=True), color=INK, linewidth=0.5, alpha=0.5)
            axes.scatter(*vertices.T, s=16, color="#CC3311")
            axes.set_axis_off()
        return figure
