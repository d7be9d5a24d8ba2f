"""Is it the softmax that slows training down? (app. B.9)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record


class Sinkhorn(Experiment):
    """Training curves with and without exponentials."""

    name = "sinkhorn"
    title = "Sinkhorn, Sinkhorn without the logarithm, and go-mHC with a softmax"
    paper = (
        "App. B.9: Sinkhorn-Knopp of absolute values converges sooner than in the logarithm, around when go-mHC does; "
        "a redundant softmax slows go-mHC down: softmax chokes gradients."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 16, "num_epochs": 3000} if scale == "quick" else {"num_epochs": 10_000}
        return [ToyRun(method=method, **sizes) for method in ("go-s2", "go-softmax", "mhc", "mhc-linear", "mhc-lite")]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        pairs = {
            "sinkhorn-linear": ("mhc", "mhc-linear"),
            "sinkhorn-as-go": ("mhc-linear", "go-s2"),
            "softmax-chokes": ("go-softmax", "go-s2"),
        }
        for claim, (over, under) in pairs.items():
            above, below = (metric(records, "converged", method=method) for method in (over, under))
            if above is not None and below:
                found[claim] = Finding(above / below, f"{over} {above:g} epochs, {under} {below:g}")
        return found
