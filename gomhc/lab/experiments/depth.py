"""Do far layers forget which stream was which? (app. B.5)

d = num_streams, s = expressivity
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff.measures import second_eigenvalue
from gomhc.birkhoff.samplers import SAMPLERS, haar_orthogonal
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, only

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
