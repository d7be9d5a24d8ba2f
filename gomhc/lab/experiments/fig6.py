"""Training curves of four streams, by epochs and by final loss (fig. 6, app. F.3)."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.projector_noise import FloorRun
from gomhc.lab.experiments.toy import ToyRun, metric, quick_epochs, ratio
from gomhc.lab.results.claim import TRUE, Claim, Finding, Headline, Rule
from gomhc.lab.results.record import Record, select

PAPER = ("go-square-s1", "go-square-s2", "go-square-s3", "mhc-lite", "kromhc")
BEYOND = ("transportation", "identity")


class Fig6(Experiment):
    """Training curves of four streams."""

    name = "fig6"
    title = "Training curves of a 4-stream mixing task"
    paper = (
        "Fig. 6: with η = 1e-3, 64 targets, 100 samples and ε = 0.1, go-mHC (s ≥ 2) reaches the noise floor ε²/3 at "
        "about 500 epochs, mHC-lite the same loss at about 10,000, KromHC ends highest and go-mHC with s = 1 in "
        "between."
    )
    order = 70
    claims = (
        Claim("fig6-floor-go", "fig. 6", "floor", "go with s ≥ 2 ends at the theoretical minimum.",
              "Final loss over the floor, s = 2.", Rule(0.98, 1.02)),
        Claim("fig6-floor-lite", "fig. 6", "floor", "mHC-lite ends at the same loss.", "Final loss over the floor.",
              Rule(0.98, 1.02)),
        Claim("fig6-kromhc", "fig. 6", "worst", "KromHC ends higher than all others.",
              "Its final loss over the floor, if it is the highest.", Rule(at_least=1.05)),
        Claim("fig6-s1", "fig. 6", "in between", "go s = 1 ends between mHC-lite and KromHC.", "Whether it does.",
              TRUE),
        Claim("fig6-500", "app. F.3", "about 500", "go s = 2 converges by about 500 epochs.",
              "First epoch within 5 % of its final loss.", Rule(at_most=1000)),
        Claim("fig6-10000", "app. F.3", "about 10,000", "mHC-lite converges by about 10,000 epochs.",
              "First epoch within 5 % of its final loss.", Rule(5000, 20_000)),
        Claim("fig6-tenfold", "abstract, sec. 5.1", "almost 10", "go reaches its loss ten times sooner than mHC-lite.",
              "Epochs to converge: mHC-lite over go s = 2.", Rule(at_least=7)),
        Claim("fig6-start", "sec. 5.1", "almost 10", "go begins to descend ten times sooner than mHC-lite.",
              "Epochs until a tenth of the way down is gone: mHC-lite over go s = 2.", Rule(at_least=7)),
        Claim("noise-floor", "app. B.1", "3.33e-3", "No doubly stochastic matrix has less expected loss than ε²/3.",
              "Expected loss at the target over ε²/3 (fresh noise).", Rule(0.99, 1.01)),
    )  # fmt: skip
    headlines = (
        Headline(
            rank=20,
            claim="fig6-tenfold",
            number="{0:.1f}×",
            holds="On the paper's toy task, at its learning rate, mHC-lite takes {0:.1f} times as many epochs as "
            "go-mHC.",
            fails="On the paper's toy task, at its learning rate, mHC-lite takes {0:.1f} times as many epochs as "
            "go-mHC, which is less than the paper says.",
        ),
    )

    PANELS = (
        ("inputs in [0, 1)", {"inputs": "mask"}),
        ("inputs times d (published code)", {"inputs": "count"}),
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        sizes: Sizes = {"num_targets": 16} if quick else {}
        as_coded = PAPER if not quick else ("go-square-s2", "mhc-lite", "kromhc")
        epochs = {method: quick_epochs(method) if quick else 20_000 for method in (*PAPER, *BEYOND)}
        return [
            FloorRun(num_streams=4, projector_noise=0.0),
            *(ToyRun(method=method, num_epochs=epochs[method], **sizes) for method in (*PAPER, *BEYOND)),
            *(ToyRun(method=method, inputs="count", num_epochs=epochs[method], **sizes) for method in as_coded),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        floors = select(records, "FloorRun")
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        findings: dict[str, Finding] = {}
        for record in floors:
            value = record.metrics["loss"] / FLOOR
            findings["noise-floor"] = Finding(value, f"{record.metrics['loss']:.4g} on 200,000 fresh samples")
        for claim, method in (("fig6-floor-go", "go-square-s2"), ("fig6-floor-lite", "mhc-lite")):
            final, lowest = metric(records, "final", method=method), metric(records, "lowest", method=method)
            if final and lowest:
                text = f"{final:.4g}: {final / FLOOR:.3f} of ε²/3, {final / lowest:.4f} of the least on these samples"
                findings[claim] = Finding(final / FLOOR, text)
        finals = {method: metric(records, "final", method=method) for method in PAPER}
        if all(finals.values()):
            highest = max(finals, key=lambda method: finals[method] or 0)
            value = (finals["kromhc"] or 0) / FLOOR
            text = f"{value:.2f} times the floor; highest is {highest}"
            findings["fig6-kromhc"] = Finding(value if highest == "kromhc" else 0, text)
            low, middle, high = (finals[method] or 0 for method in ("mhc-lite", "go-square-s1", "kromhc"))
            text = f"mHC-lite {low:.4g}, go s = 1 {middle:.4g}, KromHC {high:.4g}"
            findings["fig6-s1"] = Finding(float(low < middle < high), text)
        for claim, method in (("fig6-500", "go-square-s2"), ("fig6-10000", "mhc-lite")):
            epochs, also = metric(records, "converged", method=method), metric(coded, "converged", method=method)
            if epochs is not None:
                findings[claim] = Finding(epochs, f"{epochs:,} epochs" + _as_coded(also))
        for claim, name in (("fig6-tenfold", "converged"), ("fig6-start", "descended")):
            value, also = (ratio(kind, name, "mhc-lite", "go-square-s2") for kind in (records, coded))
            if value is not None:
                findings[claim] = Finding(value, f"{value:.1f} times" + _as_coded(also))
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Curves and numbers."""
        caption = (
            "Loss of a 4-stream mixing task, ε = 0.1. Left: the task as the paper describes it. Right: the published "
            "code multiplies its inputs by the number of entries that a mask keeps, which is d where nothing is "
            "sparse. Transportation and identity are not in the paper."
        )
        records = select(records, "ToyRun")
        return [
            curve_plot(records, self.PANELS, caption, columns=2),
            curve_table(
                records,
                "The curves in numbers; least possible: over matrices of unit sums, on these samples.",
                inputs="inputs",
            ),
        ]


FLOOR = 0.1**2 / 3


def _as_coded(value: float | None) -> str:
    """Results with the inputs of the published code."""
    return "" if value is None else f"; with inputs times d, as in the published code, {value:,.4g}"
