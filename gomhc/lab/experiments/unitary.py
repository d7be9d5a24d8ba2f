"""Unitary instead of orthogonal matrices (app. E)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record

CASES = {
    "boundary, d = 3": ("permutation-pair", 3),
    "random, d = 3": ("sinkhorn-uniform", 3),
    "random, d = 6": ("sinkhorn-uniform", 6),
}
"""Label -> sampler of the targets and number of streams."""
NOISES = ((1e-2, 0.0), (1e-4, 0.0), (1e-2, 1.0))
"""Noise on the outputs and on the target matrix."""


class Unitary(Experiment):
    """Training curves of orthogonal and unitary matrices."""

    name = "unitary"
    title = "Unitary against orthogonal matrices"
    paper = (
        "App. E: with s = 2 both reach a similar loss for d = 3 and 6, ε = 1e-4 and 1e-2, σp = 0 and 1; on the "
        "boundary of the polytope unitary matrices converge later, at random targets sooner."
    )
    order = 220
    claims = (
        Claim("unitary-loss", "app. E", "similar", "Orthogonal and unitary matrices reach a similar loss, s = 2.",
              "Largest ratio of final losses over the three cases.", Rule(at_most=1.2)),
        Claim("unitary-boundary", "app. E", "slower", "On the boundary unitary matrices converge later.",
              "Epochs to converge: unitary over orthogonal, d = 3.", Rule(at_least=1)),
        Claim("unitary-interior", "app. E", "faster",
              "In the interior unitary matrices converge sooner than orthogonal ones.",
              "Largest ratio of epochs to converge, unitary over orthogonal, d = 3 and 6.", Rule(at_most=1)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        noises = NOISES[:1] if scale == "quick" else NOISES
        sizes: Sizes = {"num_targets": 8, "num_epochs": 1500} if scale == "quick" else {"num_epochs": 8000}
        # The unitary map has half as many numbers as the published one, each of which moved its matrix by two steps.
        rates = {"go-square-s2": 1e-3, "go-unitary-s2": 2e-3}
        return [
            ToyRun(method=method, targets=targets, num_streams=d, noise=noise, projector_noise=projector,
                   learning_rate=rate, **sizes)
            for targets, d in CASES.values() for noise, projector in noises for method, rate in rates.items()
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        losses = self._ratios(records, "final")
        if losses:
            worst = max(max(value, 1 / value) for value in losses.values())
            findings["unitary-loss"] = Finding(worst, "unitary over orthogonal: " + _listed(losses))
        epochs = self._ratios(records, "converged")
        for claim, kind, pick in (("unitary-boundary", "boundary", min), ("unitary-interior", "random", max)):
            of_kind = {name: value for name, value in epochs.items() if name.startswith(kind)}
            if of_kind:
                findings[claim] = Finding(
                    pick(of_kind.values()), "epochs, unitary over orthogonal: " + _listed(of_kind)
                )
        return findings

    def _ratios(self, records: Sequence[Record], name: str) -> dict[str, float]:
        values = {
            f"{case}, ε = {noise:g}, σp = {projector:g}": ratio(
                records, name, "go-unitary-s2", "go-square-s2", targets=targets, num_streams=d, noise=noise,
                projector_noise=projector,
            )
            for case, (targets, d) in CASES.items() for noise, projector in NOISES
        }  # fmt: skip
        return {case: value for case, value in values.items() if value is not None}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each case and noise."""
        panels = [
            (f"{case}\nε = {noise:g}, σp = {sigma:g}",
             {"targets": targets, "num_streams": d, "noise": noise, "projector_noise": sigma})
            for case, (targets, d) in CASES.items() for noise, sigma in NOISES
        ]  # fmt: skip
        caption = "Loss over epochs of blockwise squared norms of orthogonal and of unitary matrices, s = 2."
        table = curve_table(
            records, "The curves in numbers.", targets="targets", num_streams="d", noise="ε", projector_noise="σp"
        )
        return [curve_plot(records, panels, caption), table]


def _listed(values: dict[str, float]) -> str:
    return "; ".join(f"{name}: {value:.2f}" for name, value in values.items())
