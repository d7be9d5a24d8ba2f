"""Epochs to converge and final loss over the number of streams (fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gomhc.lab.exhibits.curve_plots import curve, curve_table, floor_line, shared_legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import TRUE, Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWERS = (2, 4, 8, 16, 32)


class Fig8(Experiment):
    """Epochs to converge and final loss over d."""

    name = "fig8"
    title = "Epochs to converge and final loss over the number of streams"
    paper = (
        "Fig. 8: go-mHC needs steadily more epochs as d grows to 32, and reaches the floor as mHC-lite does (d ≤ 7), "
        "which is said not to depend on d, while KromHC's final loss grows away from it. At d = 32 go-mHC takes "
        "longer and ends lower."
    )
    order = 90
    claims = (
        Claim("fig8-epochs", "fig. 8", "steady increase", "go needs more epochs as d grows.",
              "Rank correlation of d and epochs to converge, s = 2.", Rule(at_least=0.9)),
        Claim("fig8-floor", "fig. 8", "floor", "go s = 2 and mHC-lite reach the floor at every d.",
              "Largest final loss over the floor.", Rule(at_most=1.05)),
        Claim("fig8-kromhc", "fig. 8", "diverges", "KromHC's final loss grows away from the floor.",
              "Final loss over the floor at the largest d (which must be the worst), inputs in [0, 1).",
              Rule(at_least=1.5)),
        Claim("fig8-kromhc-coded", "fig. 8", "diverges",
              "KromHC's final loss grows away from the floor where inputs are multiplied by d.",
              "The same with the published code's inputs.", Rule(at_least=1.5)),
        Claim("noise-floor-samples", "app. B.1", "independent of d",
              "The least loss on the samples is ε²/3 at every d.",
              "Least loss of a matrix with unit sums on 100 samples over ε²/3, at the largest d.", Rule(0.98, 1.02)),
        Claim("fig8-d32", "fig. 8", "lower, later", "At d = 32 go ends lower than KromHC and takes longer.",
              "Whether both are so.", TRUE),
    )  # fmt: skip

    METHODS = ("go-square-s2", "mhc-lite", "kromhc")

    def runs(self, scale: Scale) -> Sequence[Run]:
        if scale == "quick":
            few: Sizes = {"num_targets": 32, "num_epochs": 2500}
            return [
                *(
                    ToyRun(method=method, num_streams=d, **few)
                    for method in ("go-square-s2", "kromhc")
                    for d in (2, 4, 8, 16)
                ),
                *(ToyRun(method="mhc-lite", num_streams=d, num_targets=8, num_epochs=6000) for d in (2, 4)),
                *(ToyRun(method="kromhc", num_streams=d, inputs="count", **few) for d in (2, 4, 8, 16)),
            ]
        return [
            *(
                ToyRun(method="go-square-s2", num_streams=d, num_epochs=5000)
                for d in (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
            ),
            *(ToyRun(method="mhc-lite", num_streams=d, num_epochs=20_000) for d in (2, 3, 4, 5, 6, 7)),
            *(ToyRun(method="kromhc", num_streams=d, num_epochs=10_000) for d in POWERS),
            *(ToyRun(method="kromhc", num_streams=d, inputs="count", num_epochs=10_000) for d in POWERS),
            *(ToyRun(method="go-square-s2", num_streams=d, inputs="count", num_epochs=5000) for d in (2, 4, 8, 16)),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        coded, records = select(records, inputs="count"), select(records, inputs="mask")
        findings: dict[str, Finding] = {}
        go = _by_streams(records, "go-square-s2", "converged")
        if len(go) >= 4:
            text = ", ".join(f"d = {d}: {epochs:g}" for d, epochs in go.items())
            findings["fig8-epochs"] = Finding(_rank_correlation(list(go), list(go.values())), text)
        finals = {
            (method, d): final / FLOOR
            for method in ("go-square-s2", "mhc-lite") for d, final in _by_streams(records, method, "final").items()
        }  # fmt: skip
        if finals:
            (method, d), worst = max(finals.items(), key=lambda item: item[1])
            findings["fig8-floor"] = Finding(worst, f"at most {worst:.3f} times the floor ({method}, d = {d})")
        lowest = _by_streams(records, "go-square-s2", "lowest")
        if lowest:
            d = max(lowest)
            text = f"at d = {d} a matrix with unit sums can reach {lowest[d] / FLOOR:.3f} of ε²/3 on the 100 samples"
            findings["noise-floor-samples"] = Finding(lowest[d] / FLOOR, text)
        for claim, kind in (("fig8-kromhc", records), ("fig8-kromhc-coded", coded)):
            krom = {d: final / FLOOR for d, final in _by_streams(kind, "kromhc", "final").items()}
            if len(krom) >= 3:
                last, worst = krom[max(krom)], max(krom.values())
                text = ", ".join(f"d = {d}: {value:.3g}" for d, value in krom.items())
                findings[claim] = Finding(last if last == worst else 0, f"final loss over the floor: {text}")
        pair = [
            [metric(records, name, method=method, num_streams=32) for name in ("final", "converged")]
            for method in ("go-square-s2", "kromhc")
        ]
        if all(value is not None for values in pair for value in values):
            (go_loss, go_epochs), (krom_loss, krom_epochs) = pair
            both = go_loss < krom_loss and go_epochs > krom_epochs  # type: ignore[operator]
            text = f"go {go_loss:.4g} after {go_epochs:g} epochs, KromHC {krom_loss:.4g} after {krom_epochs:g}"
            findings["fig8-d32"] = Finding(float(both), text)
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Both panels, with inputs as written and as coded."""
        caption = (
            "Epochs until the loss is within 5 % of its last value, and that last value, over d. Faint: with inputs "
            "times d, as in the published code, KromHC's loss grows with d; with inputs whose size does not depend on "
            "d it falls. Grey: the least that a matrix of unit sums can reach on the 100 samples, which falls below "
            "ε²/3 (dotted) as d grows. Right: curves at the largest d."
        )
        written = select(records, inputs="mask")
        table = curve_table(written, "Inputs in [0, 1).", num_streams="d")
        return [Plot(draw=lambda: self._draw(records), caption=caption), table]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(9, 5.4)
        grid = figure.subplots(2, 2, width_ratios=(1.7, 1))
        written, coded = select(records, inputs="mask"), select(records, inputs="count")
        ticks = sorted({record.configuration["num_streams"] for record in records})
        largest = max(
            (record.configuration["num_streams"] for record in select(written, method="kromhc")), default=ticks[-1]
        )
        for axes, name, label in zip(
            grid[:, 0], ("converged", "final"), ("epochs to converge", "final loss"), strict=True
        ):
            for method in self.METHODS:
                self._over_streams(axes, written, method, name)
                self._over_streams(axes, coded, method, name, alpha=0.35, label=None)
            axes.set(ylabel=label, xscale="log", yscale="log")
            axes.set_xticks(ticks, labels=[str(d) for d in ticks])
            axes.minorticks_off()
        self._over_streams(
            grid[1, 0],
            written,
            "go-square-s2",
            "lowest",
            color="#8A8A8A",
            linestyle="-",
            linewidth=4,
            alpha=0.4,
            label=None,
        )
        floor_line(grid[1, 0], 0.1)
        grid[1, 0].set_xlabel("streams d")
        for record in select(written, num_streams=largest):
            curve(grid[0, 1], record)
        floor_line(grid[0, 1], 0.1)
        grid[0, 1].set(title=f"d = {largest}", xlabel="epoch + 1", ylabel="loss")
        grid[1, 1].set_axis_off()
        shared_legend(figure, grid[:, 0])
        return figure

    def _over_streams(self, axes: Axes, records: Sequence[Record], method: str, name: str, **style: Any) -> None:
        """One metric of one method over d; zero epochs are drawn as one, for the axis is logarithmic."""
        least = 1 if name == "converged" else 0.0
        pairs = sorted(
            (r.configuration["num_streams"], max(least, r.metrics[name])) for r in select(records, method=method)
        )
        if pairs:
            axes.plot(
                *zip(*pairs, strict=True),
                marker="o",
                markersize=4,
                **{**line(method), **style},
            )


FLOOR = 0.1**2 / 3


def _rank_correlation(a: list[int], b: list[float]) -> float:
    """Spearman's, of values without ties."""
    ranks_a, ranks_b = (np.argsort(np.argsort(np.array(values, dtype=float))) for values in (a, b))
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _by_streams(records: Sequence[Record], method: str, name: str) -> dict[int, float]:
    """D -> this metric of this method, ordered."""
    pairs = [(record.configuration["num_streams"], record.metrics[name]) for record in select(records, method=method)]
    return dict(sorted((d, value) for d, value in pairs if value is not None))
