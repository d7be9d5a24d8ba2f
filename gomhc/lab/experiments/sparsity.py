"""Training with sparse inputs (app. A.2).

The published code multiplies dense inputs by the number of entries that a mask keeps, which makes none of them zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

SPARSITIES = (0.0, 0.5, 0.9, 0.99)
BASELINES = {"mhc-lite": (2, 4, 6), "kromhc": (2, 4, 8)}


class Sparsity(Experiment):
    """Training curves with sparse inputs."""

    name = "sparsity"
    title = "Sparse inputs"
    paper = (
        "App. A.2: with inputs of sparsity 0, 0.5, 0.9 (0.99 in the text) the trend stays the same for every d; the "
        "loss is only rescaled. The published code multiplies inputs by a count instead of a mask; here entries are "
        "zero."
    )
    order = 120
    claims = (
        Claim("sparsity-trend", "app. A.2", "no change",
              "Sparse inputs do not change the trend: go stays about ten times faster.",
              "Smallest ratio of epochs to converge, mHC-lite over go s = 2, at true sparsity 0.9.", Rule(at_least=5)),
        Claim("sparsity-rescales", "app. A.2", "only rescales", "Sparsity rescales the loss and nothing else.",
              "Epochs to converge of go s = 2 at sparsity 0.9 over those at 0.", Rule(0.67, 1.5)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        levels, streams = ((0.0, 0.9), (4,)) if quick else (SPARSITIES, (2, 4, 6, 8, 10))
        sizes: Sizes = {"num_targets": 16} if quick else {}
        short, long = (2000, 5000) if quick else (10_000, 20_000)
        epochs = {"go-square-s2": short, "mhc-lite": long, "kromhc": short if quick else long}
        return [
            ToyRun(method=method, num_streams=d, sparsity=level, num_epochs=epochs[method], **sizes)
            for d in streams for level in levels for method in ("go-square-s2", "mhc-lite", "kromhc")
            if d in BASELINES.get(method, streams)
        ] + [
            ToyRun(method=method, inputs="count", sparsity=0.9, num_epochs=epochs[method], **sizes)
            for method in ("go-square-s2", "mhc-lite")
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        findings: dict[str, Finding] = {}
        sparse_records = select(records, sparsity=0.9)
        speed = {
            d: value
            for d in BASELINES["mhc-lite"]
            if (value := ratio(sparse_records, "converged", "mhc-lite", "go-square-s2", num_streams=d)) is not None
        }
        if speed:
            text = ", ".join(f"{value:.1f} (d = {d})" for d, value in speed.items())
            also = ratio(coded, "converged", "mhc-lite", "go-square-s2")
            text += f"; as coded in the paper {also:.1f} (d = 4)" if also else ""
            findings["sparsity-trend"] = Finding(min(speed.values()), text)
        dense, sparse = (
            metric(records, "converged", method="go-square-s2", num_streams=4, sparsity=s) for s in (0.0, 0.9)
        )
        if dense and sparse is not None:
            findings["sparsity-rescales"] = Finding(
                sparse / dense, f"{dense:g} epochs dense, {sparse:g} at sparsity 0.9"
            )
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each d and sparsity, and the published form beside the true one."""
        masked = select(records, inputs="mask")
        pairs = sorted({(record.configuration["num_streams"], record.configuration["sparsity"]) for record in masked})
        panels = [(f"d = {d}, sparsity {level:g}", {"num_streams": d, "sparsity": level}) for d, level in pairs]
        caption = "Loss over epochs with inputs of which this share is zero. "
        table = (
            "The curves in numbers; inputs `count`: dense, times the number of entries a mask keeps, as in the "
            "published code."
        )
        return [
            curve_plot(masked, panels, caption, columns=len({level for _, level in pairs})),
            curve_table(records, table, num_streams="d", sparsity="sparsity", inputs="inputs"),
        ]
