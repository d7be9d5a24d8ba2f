"""Does the speed-up hold for every number of streams and block size? (app. A.1)"""

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
        sizes: Sizes
        go: Sequence[int]
        lite: Sequence[int]
        krom: Sequence[int]
        if scale == "quick":
            go, lite, krom, sizes, long = (2, 4, 6), (2, 4), (2, 4), {"num_targets": 8, "num_epochs": 2000}, 6000
        else:
            go, lite, krom, sizes, long = (
                tuple(range(2, 11)),
                tuple(range(2, 7)),
                (2, 4, 8),
                {"num_epochs": 5000},
                20_000,
            )
        baselines = [("mhc-lite", d) for d in lite] + [("kromhc", d) for d in krom]
        first: Sizes = {**sizes, "num_epochs": 0, "inputs": "count"}  # nothing is trained: the loss at the start alone
        return [
            *(ToyRun(method=method, num_streams=d, **sizes) for d in go for method in GO),
            *(ToyRun(method=method, num_streams=d, **{**sizes, "num_epochs": long}) for method, d in baselines),
            *(ToyRun(method="go-square-s2", num_streams=d, **first) for d in go),
            *(ToyRun(method=method, num_streams=d, **first) for method, d in baselines),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        found: dict[str, Finding] = {}
        streams = sorted({record.configuration["num_streams"] for record in records})
        speed = {
            d: value
            for d in streams
            if (value := ratio(records, "converged", "mhc-lite", "go-square-s2", num_streams=d))
        }
        if speed:
            text = ", ".join(f"{value:.1f} (d = {d})" for d, value in speed.items())
            found["dims-tenfold"] = Finding(min(speed.values()), text)
        finals = [r for method in ("go-square-s2", "go-square-s3", "mhc-lite") for r in select(records, method=method)]
        if finals:
            worst = max(finals, key=lambda record: record.metrics["final"])
            value, where = worst.metrics["final"] / FLOOR, worst.configuration
            found["dims-floor"] = Finding(value, f"at most {value:.3f} ({where['method']}, d = {where['num_streams']})")
        pairs = [(ratio(records, "converged", "go-square-s3", "go-square-s1", num_streams=d),
                  ratio(records, "final", "go-square-s3", "go-square-s1", num_streams=d)) for d in streams]  # fmt: skip
        pairs = [(speed, loss) for speed, loss in pairs if speed is not None and loss is not None]
        if pairs:
            share = sum(speed <= 1 and loss <= 1.01 for speed, loss in pairs) / len(pairs)  # type: ignore[operator]
            text = f"at {share:.0%} of d; epochs, s = 3 over s = 1: " + ", ".join(f"{speed:.2f}" for speed, _ in pairs)
            found["dims-s"] = Finding(share, text)
        for claim, kind in (("dims-start", records), ("dims-start-coded", coded)):
            if finding := _first_losses(kind):
                found[claim] = finding
        return found

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


def _first_losses(records: Sequence[Record]) -> Finding | None:
    """Whether the loss at the start grows with d for go-mHC and KromHC and is constant for mHC-lite."""
    firsts = {}
    for method in ("go-square-s2", "kromhc", "mhc-lite"):
        ordered = sorted(select(records, method=method), key=lambda record: record.configuration["num_streams"])
        firsts[method] = [record.metrics["first"] for record in ordered]
    if any(len(values) < 2 for values in firsts.values()):
        return None
    grows = all(values == sorted(values) for values in (firsts["go-square-s2"], firsts["kromhc"]))
    constant = max(firsts["mhc-lite"]) <= 1.5 * min(firsts["mhc-lite"])
    text = "; ".join(f"{method}: {values[0]:.3g} to {values[-1]:.3g}" for method, values in firsts.items())
    return Finding(float(grows and constant), text)
