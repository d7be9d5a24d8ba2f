"""Is the tenfold speed-up an effect of the learning rate, of the start, or of Adam's epsilon? (not in the paper)

Each method is trained at seven rates; what counts is the first epoch within 5 % of the least loss on the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
METHODS = ("go-s2", "go-s3", "mhc-lite", "mhc", "mhc-linear", "transportation")


class LearningRate(Experiment):
    """Epochs to reach the floor over the learning rate."""

    name = "learning-rate"
    title = "Every method at its own best learning rate"
    paper = (
        "Sec. 5.1: at one learning rate, 1e-3, go-mHC converges almost ten times sooner than mHC-lite. Whether it "
        "does when each has the rate that suits it best is not asked there."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        rates = (1e-3, 1e-2, 1e-1, 3e-1, 1.0) if quick else RATES
        methods = ("go-s2", "mhc-lite", "mhc", "transportation") if quick else METHODS
        sizes: Sizes = {"num_targets": 16, "num_epochs": 1000} if quick else {"num_epochs": 5000}
        return [
            *(ToyRun(method=method, learning_rate=rate, **sizes) for method in methods for rate in rates),
            *(ToyRun(method=method, learning_rate=rate, start="near-identity", **sizes)
              for method in ("go-s2", "mhc-lite") for rate in ((1e-2, 1e-1, 3e-1) if quick else rates)),
            *(ToyRun(method=method, epsilon=1e-12, **sizes) for method in ("go-s2", "mhc-lite")),
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for claim, start in (("rate-effect", None), ("rate-effect-start", "near-identity")):
            best = {
                method: min(reached, default=None)
                for method in METHODS
                if (reached := _reached(select(records, method=method, start=start, epsilon=1e-6))) is not None
            }
            if {"go-s2", "mhc-lite"} <= best.keys() and (best["go-s2"] or best["mhc-lite"]):
                found[claim] = compare(best, records[0].configuration["num_epochs"])
        return found


def compare(best: Mapping[str, tuple[int, float] | None], num_epochs: int) -> Finding:
    """How many times the epochs of go mHC-lite takes; a bound, where one of them does not get there."""
    go, lite = best["go-s2"], best["mhc-lite"]
    value = (lite[0] if lite else num_epochs) / (go[0] if go else num_epochs)
    bound = "" if go and lite else "more than " if go else "less than "
    text = ", ".join(
        f"{method} {at[0]} (η = {at[1]:g})" if at else f"{method} not in {num_epochs:,} at any rate"
        for method, at in best.items()
    )
    return Finding(value, f"{bound}{value:.1f} times; epochs at the best rate: {text}")


def _reached(records: Sequence[Record]) -> list[tuple[int, float]] | None:
    """(epochs to within 5 % of the least loss, rate) wherever that was reached; None without records."""
    pairs = [(record.metrics["reached"], record.configuration["learning_rate"]) for record in records]
    return [pair for pair in pairs if pair[0] is not None] if pairs else None
