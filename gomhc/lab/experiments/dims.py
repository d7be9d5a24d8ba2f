"""The speed-up of go-mHC for two to ten streams and three block sizes (app. A.1)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, ratio
from gomhc.lab.results.claim import TRUE, Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

GO = ("go-square-s1", "go-square-s2", "go-square-s3")
FLOOR = 0.1**2 / 3


class Dims(Experiment):
    """Training curves for d = 2 to 10."""

    name = "dims"
    title = "Training curves for two to ten streams"
    paper = (
        "App. A.1: for d = 2…10 go-mHC keeps its tenfold speed-up, with s ≥ 2 and mHC-lite (d < 7) converging to "
        "ε²/3; larger s converges sooner and lower; the first loss grows with d for go-mHC and KromHC and stays "
        "constant for mHC-lite."
    )
    order = 110
    claims = (
        Claim("dims-tenfold", "app. A.1", "about 10", "The tenfold speed-up is there at every d.",
              "Smallest ratio of epochs to converge, mHC-lite over go s = 2, d = 2…6.", Rule(at_least=5)),
        Claim("dims-start", "app. A.1", "monotonic",
              "The first loss grows with d for go and KromHC, and not for mHC-lite.",
              "Whether it is so (mHC-lite's largest first loss at most 1.5 times its smallest), inputs in [0, 1).",
              TRUE),
        Claim("dims-start-coded", "app. A.1", "monotonic", "The first loss grows so where inputs are multiplied by d.",
              "The same with the published code's inputs.", TRUE),
        Claim("dims-floor", "app. A.1", "floor", "go s ≥ 2 and mHC-lite converge to the floor at every d.",
              "Largest final loss over the floor.", Rule(at_most=1.05)),
        Claim("dims-s", "app. A.1", "faster, lower", "Larger s converges sooner and ends no higher.",
              "Share of d at which s = 3 is no slower and no higher (1 %) than s = 1.", Rule(at_least=0.9)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        go_streams = (2, 4, 6) if quick else range(2, 11)
        lite_streams = (2, 4) if quick else range(2, 7)
        krom_streams = (2, 4) if quick else (2, 4, 8)
        sizes: Sizes = {"num_targets": 8} if quick else {}
        short, long = (2000, 6000) if quick else (5000, 20_000)
        go = [(method, d) for d in go_streams for method in GO]
        rivals = [("mhc-lite", d) for d in lite_streams] + [("kromhc", d) for d in krom_streams]
        untrained = [("go-square-s2", d) for d in go_streams] + rivals  # their loss at the start is all that is wanted
        return [
            *(ToyRun(method=method, num_streams=d, num_epochs=short, **sizes) for method, d in go),
            *(ToyRun(method=method, num_streams=d, num_epochs=long, **sizes) for method, d in rivals),
            *(ToyRun(method=method, num_streams=d, num_epochs=0, inputs="count", **sizes) for method, d in untrained),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        written, coded = select(records, inputs="mask"), select(records, inputs="count")
        findings = {
            "dims-tenfold": self._speed(written),
            "dims-floor": self._floor(written),
            "dims-s": self._block_size(written),
            "dims-start": self._first_losses(written),
            "dims-start-coded": self._first_losses(coded),
        }
        return {claim: finding for claim, finding in findings.items() if finding is not None}

    def _speed(self, records: Sequence[Record]) -> Finding | None:
        """Epochs to converge of mHC-lite over those of go-mHC, for every d that has both."""
        speed = self._ratios(records, "converged", "mhc-lite", "go-square-s2")
        text = ", ".join(f"{value:.1f} (d = {d})" for d, value in speed.items())
        return Finding(min(speed.values()), text) if speed else None

    def _floor(self, records: Sequence[Record]) -> Finding | None:
        """The largest final loss of the methods that reach everything."""
        finals = [r for method in ("go-square-s2", "go-square-s3", "mhc-lite") for r in select(records, method=method)]
        if not finals:
            return None
        worst = max(finals, key=lambda record: record.metrics["final"])
        value, where = worst.metrics["final"] / FLOOR, worst.configuration
        return Finding(value, f"at most {value:.3f} ({where['method']}, d = {where['num_streams']})")

    def _block_size(self, records: Sequence[Record]) -> Finding | None:
        """At how many d go-mHC with s = 3 is no slower and ends no higher than with s = 1."""
        epochs = self._ratios(records, "converged", "go-square-s3", "go-square-s1")
        losses = self._ratios(records, "final", "go-square-s3", "go-square-s1")
        if not epochs:
            return None
        share = sum(epochs[d] <= 1 and losses[d] <= 1.01 for d in epochs) / len(epochs)
        listed = ", ".join(f"{value:.2f}" for value in epochs.values())
        return Finding(share, f"at {share:.0%} of d; epochs, s = 3 over s = 1: {listed}")

    def _first_losses(self, records: Sequence[Record]) -> Finding | None:
        """Whether the loss at the start grows with d for go-mHC and KromHC and is constant for mHC-lite."""
        firsts = {}
        for method in ("go-square-s2", "kromhc", "mhc-lite"):
            ordered = sorted(select(records, method=method), key=lambda record: record.configuration["num_streams"])
            firsts[method] = [record.metrics["first"] for record in ordered]
        if any(len(losses) < 2 for losses in firsts.values()):
            return None
        grows = all(losses == sorted(losses) for losses in (firsts["go-square-s2"], firsts["kromhc"]))
        constant = max(firsts["mhc-lite"]) <= 1.5 * min(firsts["mhc-lite"])
        text = "; ".join(f"{method}: {losses[0]:.3g} to {losses[-1]:.3g}" for method, losses in firsts.items())
        return Finding(float(grows and constant), text)

    def _ratios(self, records: Sequence[Record], name: str, over: str, under: str) -> dict[int, float]:
        """Number of streams -> ratio of a metric, wherever both methods have one."""
        streams = sorted({record.configuration["num_streams"] for record in records})
        ratios = {d: ratio(records, name, over, under, num_streams=d) for d in streams}
        return {d: value for d, value in ratios.items() if value is not None}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each d."""
        records = select(records, inputs="mask")
        streams = sorted({record.configuration["num_streams"] for record in records})
        panels = [(f"d = {d}", {"num_streams": d}) for d in streams]
        caption = (
            "Loss over epochs, d streams. mHC-lite has d! logits and is left out from d = 7 on; KromHC is run for "
            "powers of two."
        )
        return [curve_plot(records, panels, caption), curve_table(records, "The curves in numbers.", num_streams="d")]
