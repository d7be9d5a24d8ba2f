"""Training on one stream that is read from the mixture (app. C)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.stream_mixer import Objective
from gomhc.lab.experiments.toy import ToyRun, quick_epochs
from gomhc.lab.results.claim import TRUE, Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select

METHODS = ("go-square-s2", "mhc-lite", "kromhc")
KINDS: tuple[Objective, ...] = ("read-fixed", "read-learned")


class ReadTerm(Experiment):
    """Training curves with a read term, fixed or learned."""

    name = "read-term"
    title = "A read term that can break symmetry"
    paper = (
        "App. C: learning the read weights as well lowers the loss of every method, and leaves their order: go-mHC is "
        "fastest and lowest, KromHC highest."
    )
    order = 200
    claims = (
        Claim("read-order", "app. C", "invariant", "A learned read term keeps the order of methods.",
              "Whether go s = 2 is first to converge and KromHC ends highest, with and without.", TRUE),
        Claim("read-lower", "app. C", "lower", "A learned read term lowers the loss of every method.",
              "Largest ratio of final losses, with over without.", Rule(at_most=1)),
    )  # fmt: skip

    PANELS = (
        ("read weights given", {"objective": "read-fixed"}),
        ("read weights learned", {"objective": "read-learned"}),
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        sizes: Sizes = {"num_targets": 16} if quick else {}
        methods = METHODS if quick else ("go-square-s1", *METHODS)
        return [
            ToyRun(method=method, objective=objective, num_epochs=quick_epochs(method) if quick else 20_000, **sizes)
            for objective in KINDS for method in methods
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        metrics = {
            (kind, method): only(records, method=method, objective=kind).metrics
            for kind in KINDS for method in METHODS if select(records, method=method, objective=kind)
        }  # fmt: skip
        if len(metrics) < len(KINDS) * len(METHODS):
            return {}
        ordered = all(
            metrics[kind, "go-square-s2"]["converged"] == min(metrics[kind, method]["converged"] for method in METHODS)
            and metrics[kind, "kromhc"]["final"] == max(metrics[kind, method]["final"] for method in METHODS)
            for kind in KINDS
        )
        finals = {key: of_run["final"] for key, of_run in metrics.items()}
        ratios = {method: finals["read-learned", method] / finals["read-fixed", method] for method in METHODS}
        text = "; ".join(f"{kind} {method}: {final:.3g}" for (kind, method), final in finals.items())
        lower = ", ".join(f"{method} {value:.2f}" for method, value in ratios.items())
        return {
            "read-order": Finding(float(ordered), text),
            "read-lower": Finding(max(ratios.values()), f"final loss learned over fixed: {lower}"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Given and learned read weights side by side."""
        caption = "Loss of one stream that is read from the mixture, over epochs, d = 4."
        table = curve_table(records, "The curves in numbers.", objective="read")
        return [curve_plot(records, self.PANELS, caption, columns=2), table]
