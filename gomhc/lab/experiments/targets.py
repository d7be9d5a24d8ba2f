"""Training towards targets of six distributions (app. A.4)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, quick_epochs, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record

DISTRIBUTIONS: dict[str, tuple[str, int | None]] = {
    "Sinkhorn of uniform": ("sinkhorn-uniform", None),
    "Haar orthogonal, s = 1": ("haar-orthogonal", 1),
    "Haar orthogonal, s = 2": ("haar-orthogonal", 2),
    "Haar unitary, s = 1": ("haar-unitary", 1),
    "Haar unitary, s = 2": ("haar-unitary", 2),
    "Dirichlet over permutations": ("dirichlet-permutations", None),
}
"""Label -> sampler and block size."""


class Targets(Experiment):
    """Training curves for six distributions of targets."""

    name = "targets"
    title = "Six distributions of target matrices"
    paper = (
        "App. A.4: whatever the distribution of targets (six are shown), go-mHC keeps its advantage in speed and in "
        "loss."
    )
    order = 130
    claims = (
        Claim("targets-faster", "app. A.4", "all six", "Whatever the distribution of targets, go converges sooner.",
              "Smallest ratio of epochs to converge, mHC-lite over go s = 2, over six distributions.",
              Rule(at_least=2)),
        Claim("targets-lower", "app. A.4", "all six",
              "Whatever the distribution of targets, go ends lower than KromHC.",
              "Smallest ratio of final losses, KromHC over go s = 2.", Rule(at_least=1)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        methods = (
            ("go-square-s2", "mhc-lite", "kromhc") if quick else ("go-square-s1", "go-square-s2", "mhc-lite", "kromhc")
        )
        sizes: Sizes = {"num_targets": 16} if quick else {}
        return [
            ToyRun(method=method, targets=sampler, target_expressivity=size,
                   num_epochs=quick_epochs(method) if quick else 20_000, **sizes)
            for sampler, size in DISTRIBUTIONS.values() for method in methods
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        for claim, name, over in (("targets-faster", "converged", "mhc-lite"), ("targets-lower", "final", "kromhc")):
            pairs = {
                shown: ratio(records, name, over, "go-square-s2", targets=sampler, target_expressivity=size)
                for shown, (sampler, size) in DISTRIBUTIONS.items()
            }
            ratios = {shown: value for shown, value in pairs.items() if value is not None}
            if len(ratios) == len(DISTRIBUTIONS):
                text = "; ".join(f"{shown}: {value:.2g}" for shown, value in ratios.items())
                findings[claim] = Finding(min(ratios.values()), text)
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each distribution."""
        panels = [
            (name, {"targets": sampler, "target_expressivity": size}) for name, (sampler, size) in DISTRIBUTIONS.items()
        ]
        caption = "Loss over epochs for target matrices drawn in six ways, d = 4."
        table = curve_table(records, "The curves in numbers.", targets="targets", target_expressivity="s of targets")
        return [curve_plot(records, panels, caption), table]
