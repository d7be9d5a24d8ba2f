"""Training on the distance between matrices instead of streams (app. A.5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric, quick_epochs, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record


class Distance(Experiment):
    """Training curves of the distance between matrices."""

    name = "distance"
    title = "Learning the matrix instead of what it does"
    paper = (
        "App. A.5.2: minimising the entrywise distance to the target matrix shows the same behaviour as comparing "
        "outputs."
    )
    order = 140
    claims = (
        Claim("distance-same", "app. A.5.2", "same", "Learning the matrix itself shows the same order and speed-up.",
              "Ratio of epochs to converge, mHC-lite over go s = 2.", Rule(at_least=5)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        sizes: Sizes = {"num_targets": 16} if quick else {}
        return [
            ToyRun(method=method, objective="matrix", num_epochs=quick_epochs(method) if quick else 20_000, **sizes)
            for method in ("go-square-s1", "go-square-s2", "go-square-s3", "mhc-lite", "kromhc")
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        value = ratio(records, "converged", "mhc-lite", "go-square-s2")
        if value is None:
            return {}
        finals = {m: metric(records, "final", method=m) for m in ("go-square-s2", "mhc-lite", "go-square-s1", "kromhc")}
        text = f"{value:.1f} times; final losses " + ", ".join(
            f"{m} {final:.4g}" for m, final in finals.items() if final
        )
        return {"distance-same": Finding(value, text)}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """One panel."""
        caption = (
            "Mean squared distance of entries from a noisy target matrix (ε = 0.1, drawn anew each epoch), averaged "
            "over noise."
        )
        return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
