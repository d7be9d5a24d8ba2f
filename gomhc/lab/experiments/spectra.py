"""How much of the Karpelevič region matrices of each method reach (figs. 3, 4, app. A.5.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.karpelevic import contains, polygon_excess
from gomhc.birkhoff.spectral_reach import spectral_reach
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.exhibits.spectrum_plots import reach_exhibits
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.results.claim import Claim, Finding, Headline, Rule
from gomhc.lab.results.record import Record

CHUNK = 5000
"""Targets in one batch of the search."""
NUM_CELLS = 101
"""Cells on a side of the histogram."""

NUM_COARSE_CELLS = 41
"""Cells on a side for the share that is reached: each holds many targets."""


@dataclass(frozen=True, kw_only=True)
class ReachRun(Run):
    """Eigenvalues of matrices whose closest eigenvalue was pulled to random targets."""

    method: str
    """A mixing, as `gomhc.birkhoff.as_mixing` takes it."""
    num_streams: int
    """d"""
    num_targets: int = 100_000
    """Random points of the square."""
    num_steps: int = 100
    """Steps of Adam for each target."""
    start_scale: float = 1.0
    """Standard deviation of the logits at the start."""
    seed: int = 0
    """Seed of targets and starts."""

    @property
    def full_size(self) -> bool:
        return self.num_targets >= 100_000

    @property
    def cost(self) -> float:
        return 1e-5 * self.num_targets * self.num_steps

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        parametrization = as_mixing(self.method, self.num_streams)
        num_chunks = math.ceil(self.num_targets / CHUNK)
        eigenvalues = np.concatenate([self._chunk(parametrization, generator) for _ in range(num_chunks)])
        return summary(eigenvalues[: self.num_targets], self.num_streams)

    def _chunk(self, parametrization: Parametrization, generator: torch.Generator) -> np.ndarray:
        size = min(CHUNK, self.num_targets)
        options: Sizes = {"num_steps": self.num_steps, "start_scale": self.start_scale, "learning_rate": 0.3}
        return spectral_reach(parametrization, size, generator, **options).numpy()


def summary(eigenvalues: np.ndarray, num_streams: int) -> dict[str, Any]:
    """Histogram of eigenvalues (matrices, d) over the square, and how they lie to the polygons, the spectrum of B_d."""
    points = eigenvalues.ravel()
    edges = np.linspace(-1 - 1e-9, 1 + 1e-9, NUM_CELLS + 1)
    counts, *_ = np.histogram2d(points.real, points.imag, bins=(edges, edges))
    excess = polygon_excess(points.real + 1j * np.where(np.abs(points.imag) > 1e-6, points.imag, 0), num_streams)
    complex_ones = points[np.abs(points.imag) > 1e-6]
    real_ones = points[np.abs(points.imag) <= 1e-6].real
    hit, _ = np.histogram(real_ones, bins=50, range=(-1 - 1e-9, 1 + 1e-9))
    return {
        "histogram": counts.astype(int).tolist(),
        "share": covered_share(points, num_streams),
        "outside_share": float((excess > 1e-6).mean()),
        "outside_distance": float(excess.max()),
        "outside_karpelevic": float((~contains(points, num_streams, tolerance=1e-6)).mean()),
        "largest_imaginary_part": float(np.abs(points.imag).max()),
        "outside_hypocycloid": outside_hypocycloid(complex_ones),
        "real_bins_hit": float((hit > 0).mean()),
    }


def covered_share(points: np.ndarray, num_streams: int) -> float:
    """Share of the cells with their centre in the union of polygons, the spectrum of B_d for d <= 4, that are hit."""
    edges = np.linspace(-1 - 1e-9, 1 + 1e-9, NUM_COARSE_CELLS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    inside = polygon_excess(centres[:, None] + 1j * centres[None, :], num_streams) == 0
    hits, *_ = np.histogram2d(points.real, points.imag, bins=(edges, edges))
    return float((inside & (hits > 0)).sum() / inside.sum())


def outside_hypocycloid(points: np.ndarray, margin: float = 0.01) -> float:
    r"""Share of points outside the deltoid (2 e^{it} + e^{-2it}) / 3, whose radius they exceed by the margin."""
    if len(points) == 0:
        return 0.0
    turn = np.linspace(0, 2 * np.pi / 3, 2001)
    curve = (2 * np.exp(1j * turn) + np.exp(-2j * turn)) / 3
    radius = np.interp(np.angle(points) % (2 * np.pi / 3), np.angle(curve) % (2 * np.pi / 3 + 1e-12), np.abs(curve))
    return float((np.abs(points) > radius + margin).mean())


class Spectra(Experiment):
    """Spectral reach of the methods."""

    name = "spectra"
    title = "Spectral reach"
    paper = (
        "Figs. 3 and 4: for d = 3 go-mHC with s = 1 fills the hypocycloid and [-1, 1], with s = 2 more; for d = 4 mHC "
        "leaves the region, mHC-lite fills it, KromHC has real eigenvalues only, go-mHC covers much with s = 1 and "
        "more with s = 2."
    )
    order = 40
    claims = (
        Claim("fig3-hypocycloid", "fig. 3a", "inside", "d = 3, s = 1: complex eigenvalues stay in the hypocycloid.",
              "Share of complex eigenvalues outside by more than 0.01.", Rule(at_most=0.001)),
        Claim("fig3-real", "fig. 3a", "[-1, 1]", "d = 3, s = 1: all real eigenvalues are reached.",
              "Share of 50 bins of [-1, 1] that are hit.", Rule(at_least=0.98)),
        Claim("fig3-gap", "fig. 3b", "ε(2) < ε(1)", "d = 3: s = 2 leaves a smaller gap than s = 1.",
              "Uncovered share of the region: s = 1 over s = 2.", Rule(at_least=1.05)),
        Claim("fig4-sinkhorn", "fig. 4a", "outside", "d = 4: mHC has eigenvalues outside the spectrum of B_4.",
              "Largest modulus beyond the polygons; logits start at scale 10, as the paper exaggerates.",
              Rule(at_least=1e-3)),
        Claim("fig4-lite", "fig. 4b", "almost completely", "d = 4: mHC-lite fills the region and does not leave it.",
              "Covered share of the region (nothing outside).", Rule(at_least=0.9)),
        Claim("fig4-kromhc", "fig. 4c", "1-dimensional", "d = 4: KromHC's eigenvalues are real.",
              "Largest |imaginary part|.", Rule(at_most=1e-6)),
        Claim("fig4-s1", "fig. 4d", "a sizeable portion", "d = 4: go s = 1 reaches much of the region, not all.",
              "Covered share of the region.", Rule(0.3, 0.97)),
        Claim("fig4-s2", "fig. 4e", "larger", "d = 4: go s = 2 reaches more than s = 1.",
              "Covered share: s = 2 minus s = 1.", Rule(at_least=0.01)),
    )  # fmt: skip
    headlines = (
        Headline(
            rank=50,
            claim="fig4-s2",
            beside=("fig4-s1", "fig4-kromhc"),
            number="{1:.0%} + {0:.0%}",
            holds="Of the eigenvalues that doubly stochastic matrices can have (d = 4), go-mHC reaches {1:.0%} with "
            "s = 1, and s = 2 adds {0:.0%} of the region. KromHC stays on the real line: its largest imaginary part is "
            "{2:.1g}.",
            fails="Of the eigenvalues that doubly stochastic matrices can have (d = 4), go-mHC reaches {1:.0%} with "
            "s = 1, and s = 2 adds no more than {0:.1%}. KromHC's largest imaginary part is {2:.1g}.",
            plot=1,
        ),
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 8000, "num_steps": 40} if scale == "quick" else {}
        pairs = [("go-s1", 3), ("go-s2", 3), *((m, 4) for m in ("mhc", "mhc-lite", "kromhc", "go-s1", "go-s2"))]
        scales = {"mhc": 10.0}  # as in the paper, which exaggerates there
        return [ReachRun(method=m, num_streams=d, start_scale=scales.get(m, 1.0), **sizes) for m, d in pairs]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        reach = {(r.configuration["method"], r.configuration["num_streams"]): r.metrics for r in records}
        findings: dict[str, Finding] = {}
        if one := reach.get(("go-s1", 3)):
            share, bins = one["outside_hypocycloid"], one["real_bins_hit"]
            findings["fig3-hypocycloid"] = Finding(
                share, f"{share:.2%} of complex eigenvalues outside by more than 0.01"
            )
            findings["fig3-real"] = Finding(bins, f"{bins:.0%} of 50 bins")
            if two := reach.get(("go-s2", 3)):
                gaps = (1 - one["share"], 1 - two["share"])
                text = f"covered {one['share']:.1%} (s = 1), {two['share']:.1%} (s = 2)"
                findings["fig3-gap"] = Finding(gaps[0] / max(gaps[1], 1e-9), text)
        if sinkhorn := reach.get(("mhc", 4)):
            value = sinkhorn["outside_distance"]
            text = f"{sinkhorn['outside_share']:.2%} of eigenvalues outside the polygons, by up to {value:.3f}; "
            text += f"{sinkhorn['outside_karpelevic']:.2%} outside the Karpelevič region, for columns still sum to one"
            findings["fig4-sinkhorn"] = Finding(value, text)
        if lite := reach.get(("mhc-lite", 4)):
            inside = lite["outside_share"] == 0
            text = f"{lite['share']:.1%} of the region, {lite['outside_share']:.2%} of eigenvalues outside"
            findings["fig4-lite"] = Finding(lite["share"] if inside else 0.0, text)
        if krom := reach.get(("kromhc", 4)):
            value = krom["largest_imaginary_part"]
            findings["fig4-kromhc"] = Finding(value, f"largest imaginary part {value:.1g}")
        if one := reach.get(("go-s1", 4)):
            findings["fig4-s1"] = Finding(one["share"], f"{one['share']:.1%} of the region")
            if two := reach.get(("go-s2", 4)):
                text = f"{two['share']:.1%} against {one['share']:.1%}"
                findings["fig4-s2"] = Finding(two["share"] - one["share"], text)
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each method, for each d."""
        return reach_exhibits(records)
