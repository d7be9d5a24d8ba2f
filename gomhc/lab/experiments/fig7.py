"""Go-mHC against mHC-lite at every stage of training, over noise and optimizers (fig. 7, app. A.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gomhc.lab.exhibits.curve_plots import curve_plot, legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.stream_mixer import Optimizer
from gomhc.lab.experiments.toy import ToyRun, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("go-square-s2", "mhc-lite")
NOISES = (1e-4, 1e-3, 1e-2, 1e-1)
RATES: dict[Optimizer, float] = {"adam": 1e-3, "sgd": 0.1}


class Fig7(Experiment):
    """Loss of one method against that of the other, while both train."""

    name = "fig7"
    title = "Phase space of training over noise, Adam and SGD"
    paper = (
        "Fig. 7 and app. A.3: learning the matrix itself, go-mHC has the lower loss at every stage over four orders of "
        "magnitude of noise; both end at ε²/3, go-mHC ten times sooner, with Adam (η = 1e-3) and with SGD (η = 0.1)."
    )
    order = 80
    claims = (
        Claim("fig7-advantage", "fig. 7", "throughout", "go has the lower loss at every stage, whatever the noise.",
              "Share of epochs at which it has, worst noise level, Adam.", Rule(at_least=0.95)),
        Claim("fig7-tenfold", "app. B.1 (fig.)", "10",
              "go reaches the final loss ten times sooner at every noise level.",
              "Epochs of mHC-lite to its last loss (5 %) over those of go to the same: smallest over noise, Adam.",
              Rule(at_least=7)),
        Claim("fig7-same", "app. B.1 (fig.)", "same", "go and mHC-lite end at the same loss at every noise level.",
              "Largest relative difference of final losses over noise levels.", Rule(at_most=0.05)),
        Claim("sgd-faster", "app. A.3", "faster", "With SGD go remains the faster one.",
              "Epochs of mHC-lite to its last loss (5 %) over those of go to the same: smallest over noise, SGD at "
              "0.1.", Rule(at_least=1)),
    )  # fmt: skip

    NAMES: ClassVar = {"adam": "Adam, η = 1e-3", "sgd": "SGD, η = 0.1"}

    def runs(self, scale: Scale) -> Sequence[Run]:
        noises = (1e-2, 1e-1) if scale == "quick" else NOISES
        targets, epochs = (
            (16, {"adam": 5000, "sgd": 5000}) if scale == "quick" else (64, {"adam": 20_000, "sgd": 60_000})
        )
        return [
            ToyRun(method=method, objective="matrix", noise=noise, optimizer=optimizer, learning_rate=RATES[optimizer],
                   num_targets=targets, num_epochs=epochs[optimizer])
            for optimizer in RATES for noise in noises for method in METHODS
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        adam, sgd = select(records, optimizer="adam"), select(records, optimizer="sgd")
        findings: dict[str, Finding] = {}
        shares = [value for noise in NOISES if (value := self._ahead(adam, noise)) is not None]
        if shares:
            worst = min(shares)
            findings["fig7-advantage"] = Finding(worst, f"at {worst:.0%} of epochs (even on a logarithmic axis)")
        for claim, kind in (("fig7-tenfold", adam), ("sgd-faster", sgd)):
            pairs = {noise: self._sooner(kind, noise) for noise in NOISES}
            ratios = {noise: value for noise, value in pairs.items() if value is not None}
            if ratios:
                text = ", ".join(f"{value:.1f} times (ε = {noise:g})" for noise, value in ratios.items())
                findings[claim] = Finding(min(ratios.values()), text)
        done = [
            r for r in adam if r.metrics["converged"] <= 0.8 * r.configuration["num_epochs"]
        ]  # else: still on the way
        finals = [value for noise in NOISES if (value := ratio(done, "final", "mhc-lite", "go-square-s2", noise=noise))]
        if finals:
            worst = max(abs(value - 1) for value in finals)
            findings["fig7-same"] = Finding(worst, f"differ by {worst:.2%} at most, at {len(finals)} levels of noise")
        return findings

    def _pair(self, records: Sequence[Record], **where: Any) -> tuple[Record, Record] | None:
        """The records of go-mHC and of mHC-lite, if both are there."""
        go, lite = (select(records, method=method, **where) for method in METHODS)
        return (go[0], lite[0]) if len(go) == len(lite) == 1 else None

    def _sooner(self, records: Sequence[Record], noise: float) -> float | None:
        """Epochs mHC-lite takes to within 5 % of its last loss over those that go-mHC takes to the same loss."""
        pair = self._pair(records, noise=noise)
        if pair is None:
            return None
        go, lite = (record.metrics for record in pair)
        there = [epoch for epoch, loss in zip(go["epochs"], go["loss"], strict=True) if loss <= 1.05 * lite["final"]]
        return lite["converged"] / max(1, there[0]) if there else 0.0

    def _ahead(self, records: Sequence[Record], noise: float) -> float | None:
        """Share of the kept epochs at which go-mHC's loss is no more than 1 % above the other's."""
        pair = self._pair(records, noise=noise)
        if pair is None:
            return None
        go, lite = (np.array(record.metrics["loss"], dtype=float) for record in pair)
        return float((go <= 1.01 * lite).mean())

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """The phase space of each optimizer, and the curves behind it."""
        caption = (
            "Training goes from the upper right to the lower left; above the dashed diagonal go-mHC (s = 2) has the "
            "lower loss at the same epoch. The loss is that of the matrix, averaged over the noise, which is drawn "
            "anew each epoch."
        )
        noises = sorted({record.configuration["noise"] for record in records})
        panels = [
            (f"{self.NAMES[o]}, ε = {noise:g}", {"optimizer": o, "noise": noise})
            for o in self.NAMES
            for noise in noises
        ]
        return [
            Plot(draw=lambda: self._draw(records, noises), caption=caption),
            curve_plot(records, panels, "The loss curves behind it.", columns=max(2, len(noises))),
        ]

    def _draw(self, records: Sequence[Record], noises: Sequence[float]) -> Figure:
        figure = new_figure(7.6, 3.9)
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        colors = ("#0077BB", "#009988", "#EE7733", "#CC3311")
        for axes, optimizer in zip(panels, self.NAMES, strict=True):
            for color, noise in zip(colors, noises, strict=False):
                pair = self._pair(records, optimizer=optimizer, noise=noise)
                if pair is not None:
                    go, lite = (record.metrics["loss"] for record in pair)
                    axes.loglog(go, lite, color=color, label=f"ε = {noise:g}")
                    axes.plot(go[-1], lite[-1], "o", color=color, markersize=5)
            low, high = axes.get_xlim()
            axes.plot((low, high), (low, high), "--", color=INK, linewidth=1)
            axes.fill_between((low, high), (low, high), (high, high), color="#009988", alpha=0.08, linewidth=0)
            axes.set(xlabel="loss of go-mHC, s = 2", title=self.NAMES[optimizer], xlim=(low, high))
        panels[0].set_ylabel("loss of mHC-lite")
        legend(panels[0], loc="lower right")
        return figure
