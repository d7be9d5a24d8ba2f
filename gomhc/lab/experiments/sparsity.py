"""Do sparse inputs change who learns fastest? (app. A.2, with inputs that are sparse)

The published code multiplies dense inputs by the number of entries that a mask keeps, which makes none of them zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric, ratio
from gomhc.lab.results.claim import Finding
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

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        levels, streams = ((0.0, 0.9), (4,)) if quick else (SPARSITIES, (2, 4, 6, 8, 10))
        sizes: Sizes = {"num_targets": 16} if quick else {}
        short, long = (2000, 5000) if quick else (10_000, 20_000)
        epochs = {"go-s2": short, "mhc-lite": long, "kromhc": short if quick else long}
        return [
            ToyRun(method=method, num_streams=d, sparsity=level, num_epochs=epochs[method], **sizes)
            for d in streams for level in levels for method in ("go-s2", "mhc-lite", "kromhc")
            if d in BASELINES.get(method, streams)
        ] + [
            ToyRun(method=method, inputs="count", sparsity=0.9, num_epochs=epochs[method], **sizes)
            for method in ("go-s2", "mhc-lite")
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        found: dict[str, Finding] = {}
        speed = {
            d: value for d in BASELINES["mhc-lite"]
            if (value := ratio(records, "converged", "mhc-lite", "go-s2", num_streams=d, sparsity=0.9)) is not None
        }  # fmt: skip
        if speed:
            text = ", ".join(f"{value:.1f} (d = {d})" for d, value in speed.items())
            also = ratio(coded, "converged", "mhc-lite", "go-s2")
            text += f"; as coded in the paper {also:.1f} (d = 4)" if also else ""
            found["sparsity-trend"] = Finding(min(speed.values()), text)
        dense, sparse = (metric(records, "converged", method="go-s2", num_streams=4, sparsity=s) for s in (0.0, 0.9))
        if dense and sparse is not None:
            found["sparsity-rescales"] = Finding(sparse / dense, f"{dense:g} epochs dense, {sparse:g} at sparsity 0.9")
        return found
