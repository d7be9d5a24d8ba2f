"""Training with other maps onto rotations than the Cayley transform (an open question of the discussion)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.birkhoff.rotations import ROTATIONS
from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record


class RotationMaps(Experiment):
    """Training curves of four maps onto rotations."""

    name = "rotations"
    title = "Other maps onto rotations"
    paper = (
        "Discussion: the Cayley transform needs a matrix inverse; Householder reflections or Hurwitz (Givens) angles "
        "are left to future work. The published notebook on spectra uses the matrix exponential."
    )
    order = 290
    claims = (
        Claim("rotations-speed", "sec. 6", "open",
              "No other map onto rotations learns in fewer epochs than the Cayley transform.",
              "Epochs to converge: the fastest of the others over Cayley, d = 4, s = 2.", Rule(at_least=1)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 8, "num_epochs": 800} if scale == "quick" else {"num_epochs": 4000}
        # n (n - 1) / 2 numbers at twice the rate move as the n² numbers of the published code do.
        return [ToyRun(method=f"go:rotation={rotation}", learning_rate=2e-3, **sizes) for rotation in ROTATIONS]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        epochs = {rotation: metric(records, "converged", method=f"go:rotation={rotation}") for rotation in ROTATIONS}
        if any(value is None for value in epochs.values()):
            return {}
        others = {name: value for name, value in epochs.items() if name != "cayley" and value is not None}
        text = ", ".join(f"{name} {value:g}" for name, value in epochs.items())
        return {
            "rotations-speed": Finding(min(others.values()) / (epochs["cayley"] or 1), f"epochs to converge: {text}")
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """One panel."""
        caption = (
            "Loss over epochs of go-mHC with s = 2, d = 4, and four maps onto rotations, all from logits of the same "
            "distribution."
        )
        return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
