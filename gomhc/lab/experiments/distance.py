"""Is it the same when the matrix itself is learned? (app. A.5.2)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric, quick_epochs, ratio
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record


class Distance(Experiment):
    """Training curves of the distance between matrices."""

    name = "distance"
    title = "Learning the matrix instead of what it does"
    paper = (
        "App. A.5.2: minimising the entrywise distance to the target matrix shows the same behaviour as comparing "
        "outputs."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        sizes: Sizes = {"num_targets": 16} if quick else {}
        return [
            ToyRun(method=method, objective="matrix", num_epochs=quick_epochs(method) if quick else 20_000, **sizes)
            for method in ("go-s1", "go-s2", "go-s3", "mhc-lite", "kromhc")
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        value = ratio(records, "converged", "mhc-lite", "go-s2")
        if value is None:
            return {}
        finals = {m: metric(records, "final", method=m) for m in ("go-s2", "mhc-lite", "go-s1", "kromhc")}
        text = f"{value:.1f} times; final losses " + ", ".join(
            f"{m} {final:.4g}" for m, final in finals.items() if final
        )
        return {"distance-same": Finding(value, text)}
