"""How fast products of mixing matrices forget which stream was which (app. B.5).

d = num_streams, s = expressivity
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from gomhc.birkhoff.measures import second_eigenvalue
from gomhc.birkhoff.samplers import SAMPLERS, haar_orthogonal
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTH = 32
SMALL = 0.01


@dataclass(frozen=True, kw_only=True)
class SecondEigenvalue(Run):
    """Second largest modulus of an eigenvalue of products of random doubly stochastic matrices, by depth: quartiles.

    Matrices are those of Haar-random rotations of expressivity s, or, with s = 0, convex combinations of permutations.
    """

    num_streams: int
    expressivity: int
    num_chains: int
    seed: int = 0

    @property
    def cost(self) -> float:
        return self.num_chains / 1000

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        product = torch.eye(self.num_streams, dtype=torch.float64)
        quartiles = []
        for _ in range(DEPTH):
            product = self._draw(generator) @ product
            moduli = second_eigenvalue(product)
            quartiles.append(moduli.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist())
        return {"quartiles": quartiles}

    def _draw(self, generator: torch.Generator) -> torch.Tensor:
        if self.expressivity == 0:
            return SAMPLERS["dirichlet-permutations"](self.num_streams, self.num_chains, generator)
        return haar_orthogonal(self.num_streams, self.num_chains, generator, self.expressivity)


class DepthDecoupling(Experiment):
    """Second eigenvalue over depth."""

    name = "depth"
    title = "Depth decoupling"
    paper = (
        "The product of random doubly stochastic matrices tends to the barycenter: its second eigenvalue vanishes with "
        "depth, and with larger s matrices overlap less (app. B.5)."
    )
    order = 160
    claims = (
        Claim("depth-lambda", "app. B.5", "→ 0",
              "The second eigenvalue of a product of random matrices vanishes with depth.",
              "Median second modulus at depth 16, d = 4, go s = 1 (the slowest).", Rule(at_most=1e-2)),
        Claim("depth-s", "app. B.5", "larger s, less overlap", "With larger s products decouple in fewer layers.",
              "Layers until the median second modulus is below 0.01: s = 1 over s = 3.", Rule(at_least=1.05)),
    )  # fmt: skip

    NAMES: ClassVar = {0: "mhc-lite", 1: "go-s1", 2: "go-s2", 3: "go-s3"}

    def runs(self, scale: Scale) -> Sequence[Run]:
        num_chains = 1000 if scale == "quick" else 10_000
        return [
            SecondEigenvalue(num_streams=d, expressivity=s, num_chains=num_chains) for d in (4, 8) for s in (1, 2, 3)
        ] + [SecondEigenvalue(num_streams=4, expressivity=0, num_chains=num_chains)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        medians = {
            s: [middle for _, middle, _ in only(records, num_streams=4, expressivity=s).metrics["quartiles"]]
            for s in (1, 2, 3)
        }
        layers = {
            s: next((n for n, value in enumerate(curve, 1) if value < SMALL), DEPTH) for s, curve in medians.items()
        }
        at_16 = medians[1][15]
        told = ", ".join(f"{count} layers (s = {s})" for s, count in layers.items())
        return {
            "depth-lambda": Finding(at_16, f"{at_16:.1e} after 16 layers, s = 1"),
            "depth-s": Finding(layers[1] / layers[3], f"below {SMALL} after {told}"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Quartiles for d = 4 and 8."""
        caption = (
            "Second largest modulus of an eigenvalue of the product of random doubly stochastic matrices: median, "
            "quartiles shaded. Haar-random rotations of expressivity s; for mHC-lite, weights uniform on the simplex."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption)]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8, 3.6)
        panels = figure.subplots(1, 2, sharey=True)
        for d, axes in zip((4, 8), panels, strict=True):
            for record in select(records, num_streams=d):
                style = line(self.NAMES[record.configuration["expressivity"]])
                low, middle, high = zip(*record.metrics["quartiles"], strict=True)
                depth = range(1, len(middle) + 1)
                axes.semilogy(depth, middle, **style)
                axes.fill_between(depth, low, high, color=style["color"], alpha=0.15, linewidth=0)
            axes.set(xlabel="matrices in the product", title=f"d = {d}", ylim=(1e-16, 1.5))
        panels[0].set_ylabel("second eigenvalue, modulus")
        panels[0].legend()
        return figure
