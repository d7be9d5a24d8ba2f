"""How much does a chain of mixing matrices amplify? (sec. 3.3, app. B.4)

d = num_streams
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff.measures import amax_gain, composite
from gomhc.birkhoff.samplers import sinkhorn_uniform
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.methods import METHODS
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, only, select

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Gains(Run):
    """Amax gains of products of random matrices, and how far from the barycenter they are, by depth; float32.

    Logits are standard normal; of HC they are the identity and a tenth of that, as a layer has that learned a little.
    """

    method: str
    num_streams: int = 4
    num_chains: int = 200
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        matrices = self._matrices(torch.Generator().manual_seed(self.seed)).float()
        barycenter = torch.full((self.num_streams, self.num_streams), 1 / self.num_streams)
        forward, backward, distance = [], [], []
        for depth in DEPTHS:
            product = composite(matrices[:, :depth])
            gain = amax_gain(product)
            forward.append(_quartiles(gain.forward))
            backward.append(_quartiles(gain.backward))
            distance.append(torch.linalg.matrix_norm(product - barycenter).max().item())
        return {"forward": forward, "backward": backward, "distance": distance}

    def _matrices(self, generator: torch.Generator) -> torch.Tensor:
        d, shape = self.num_streams, (self.num_chains, DEPTHS[-1])
        if self.method == "targets":  # what is to be learned, instead of what a method gives
            return sinkhorn_uniform(d, shape[0] * shape[1], generator).unflatten(0, shape)
        parametrization = METHODS[self.method](num_streams=d)
        logits = torch.randn(*shape, parametrization.num_logits, generator=generator)
        if self.method == "hc":
            logits = torch.eye(d).flatten() + 0.1 * logits
        return parametrization(logits)


def _quartiles(values: torch.Tensor) -> dict[str, float]:
    return {"median": values.median().item(), "largest": values.max().item(), "smallest": values.min().item()}


class Gain(Experiment):
    """Amax gain over depth."""

    name = "gain"
    title = "Gain of products of mixing matrices"
    paper = (
        "The amax gain of a doubly stochastic matrix is one, and so is that of any product of them, so exact methods "
        "all do equally well (sec. 3.3); products tend to the barycenter (app. B.4). Unconstrained hyper-connections "
        "lose this."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        names = ("go-s1", "go-s2", "mhc-lite", "kromhc", "transportation", "mhc", "hc", "targets")
        return [Gains(method=name) for name in names]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        exact = [
            record for record in records if record.configuration["method"] in ("go-s1", "go-s2", "mhc-lite", "kromhc")
        ]

        def off(index: slice) -> float:
            gains = [gain for record in exact for way in ("forward", "backward") for gain in record.metrics[way][index]]
            return max(max(gain["largest"] - 1, 1 - gain["smallest"]) for gain in gains)

        one, any_depth = off(slice(1)), off(slice(None))
        hc = only(records, method="hc").metrics["forward"][DEPTHS.index(64)]["median"]
        far = max(
            record.metrics["distance"][DEPTHS.index(64)]
            for name in ("go-s1", "go-s2", "targets")
            for record in select(records, method=name)
        )
        return {
            "agm-one": Finding(one, f"off by {one:.1e} at most"),
            "agm-depth": Finding(any_depth, f"off by {any_depth:.1e} at most, depth 1 to {DEPTHS[-1]}"),
            "hc-gain": Finding(hc, f"median gain {hc:.3g} at depth 64"),
            "barycenter-limit": Finding(far, f"{far:.1e} away at depth 64, at most"),
        }
