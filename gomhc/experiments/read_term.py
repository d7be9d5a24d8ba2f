"""Does reading one stream from the mixture change who learns best? (app. C)"""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.experiments.experiment import Experiment, Run, Scale
from gomhc.experiments.toy import ToyRun, metric
from gomhc.results.claim import Finding
from gomhc.results.record import Record

METHODS = ("go-s2", "mhc-lite", "kromhc")


class ReadTerm(Experiment):
    """Training curves with a read term, fixed or learned."""

    name = "read-term"
    title = "A read term that can break symmetry"
    paper = (
        "App. C: learning the read weights as well lowers the loss of every method, and leaves their order: go-mHC is "
        "fastest and lowest, KromHC highest."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes = {"num_targets": 16, "num_epochs": 5000} if scale == "quick" else {"num_epochs": 20_000}
        methods = METHODS if scale == "quick" else ("go-s1", *METHODS)
        return [
            ToyRun(method=method, objective=objective, **sizes)
            for objective in ("read-fixed", "read-learned") for method in methods
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        table = {
            (kind, method): [metric(records, name, method=method, objective=kind) for name in ("converged", "final")]
            for kind in ("read-fixed", "read-learned") for method in METHODS
        }  # fmt: skip
        if any(value is None for values in table.values() for value in values):
            return {}
        ordered = all(
            table[kind, "go-s2"][0] <= min(table[kind, method][0] for method in METHODS)
            and table[kind, "kromhc"][1] >= max(table[kind, method][1] for method in METHODS)
            for kind in ("read-fixed", "read-learned")
        )
        ratios = {method: table["read-learned", method][1] / table["read-fixed", method][1] for method in METHODS}
        text = "; ".join(
            f"{kind} {method}: {final:.3g} at {epochs:g}" for (kind, method), (epochs, final) in table.items()
        )
        lower = ", ".join(f"{method} {value:.2f}" for method, value in ratios.items())
        return {
            "read-order": Finding(float(ordered), text),
            "read-lower": Finding(max(ratios.values()), f"final loss learned over fixed: {lower}"),
        }
