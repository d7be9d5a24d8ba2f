"""How much chains of mixing matrices amplify (sec. 3.3, app. B.4).

d = num_streams
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gomhc.birkhoff import as_mixing
from gomhc.birkhoff.measures import amax_gain, composite
from gomhc.birkhoff.samplers import sinkhorn_uniform
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        parametrization = as_mixing(self.method, d)
        logits = torch.randn(*shape, parametrization.num_logits, generator=generator)
        if self.method == "hc":
            logits = torch.eye(d).flatten() + 0.1 * logits
        return parametrization(logits)


def _quartiles(values: torch.Tensor) -> dict[str, float]:
    return {"median": values.median().item(), "largest": values.max().item(), "smallest": values.min().item()}


class AmaxGain(Experiment):
    """Amax gain over depth."""

    name = "gain"
    title = "Gain of products of mixing matrices"
    paper = (
        "The amax gain of a doubly stochastic matrix is one, and so is that of any product of them, so exact methods "
        "all do equally well (sec. 3.3); products tend to the barycenter (app. B.4). Unconstrained hyper-connections "
        "lose this."
    )
    order = 20
    claims = (
        Claim("agm-one", "sec. 3.3, app. B.4", "1", "The amax gain of one exact mixing matrix is one, both ways.",
              "Worst |gain - 1| over go, mHC-lite and KromHC, d = 4, float32.", Rule(at_most=1e-5)),
        Claim("agm-depth", "sec. 3.3, app. B.4", "1", "The amax gain stays one for products of any depth.",
              "Worst |gain - 1| of products of up to 256 matrices.", Rule(at_most=1e-4)),
        Claim("hc-gain", "sec. 2", "instability", "Unconstrained HC amplifies: its gain grows with depth.",
              "Median forward gain of products of 64 matrices I + N(0, 0.1²), d = 4.", Rule(at_least=2)),
        Claim("barycenter-limit", "app. B.4", "J/d", "Products of mixing matrices tend to the barycenter.",
              "Largest ||product - J/d||_F at depth 64, matrices of go s = 1, 2 and of the Sinkhorn sampler.",
              Rule(at_most=1e-2)),
    )  # fmt: skip

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

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Gain and distance from the barycenter."""
        caption = (
            "Left: forward amax gain of products of random mixing matrices, d = 4, median of 200 chains, largest "
            "shaded; every exact method lies on one. Right: the largest distance of a product from the barycenter."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption)]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8, 3.6)
        gain, distance = figure.subplots(1, 2)
        for record in records:
            style = line(record.configuration["method"]) | (
                {"label": "targets (sampler)"} if record.configuration["method"] == "targets" else {}
            )
            forward = record.metrics["forward"]
            gain.loglog(DEPTHS, [step["median"] for step in forward], **style)
            gain.fill_between(
                DEPTHS, [step["smallest"] for step in forward], [step["largest"] for step in forward],
                color=style["color"], alpha=0.15, linewidth=0,
            )  # fmt: skip
            if record.configuration["method"] != "hc":
                distance.loglog(DEPTHS, [max(value, 1e-8) for value in record.metrics["distance"]], **style)
        gain.set(xlabel="matrices in the product", ylabel="amax gain, forward")
        distance.set(xlabel="matrices in the product", ylabel="largest distance from J/d")
        figure.legend(*gain.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure
