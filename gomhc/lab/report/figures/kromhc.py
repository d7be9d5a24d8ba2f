"""KromHC's error over d and factor size, and that of averages of KromHC matrices."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import legend
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import INK, new_figure
from gomhc.lab.results.record import Record, select

COLORS = {2: "#009988", 3: "#0077BB", 4: "#EE7733", 5: "#CC3311"}


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Excess over d for both kinds of inputs, and over the number of averaged terms."""
    caption = (
        "Final loss above the least that is possible on the samples. Left and middle: KromHC over d, by the size of "
        "its factors. With inputs of one size it falls as d grows; with inputs times d, as in the published code, it "
        "grows. Right: averages of several KromHC matrices over their number; dashed: 2 % of the noise floor."
    )
    return [Plot(draw=lambda: _draw(records), caption=caption)]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(9.6, 3.8)
    panels = figure.subplots(1, 3)
    for axes, inputs, title in zip(panels, ("mask", "count"), ("inputs in [0, 1)", "inputs times d"), strict=False):
        for factor, color in COLORS.items():
            pairs = _excess(select(records, method=f"kromhc-of-{factor}", inputs=inputs), "num_streams")
            if pairs:
                axes.loglog(*zip(*pairs, strict=True), "o-", color=color, label=f"factors of {factor}", markersize=5)
        axes.set(xlabel="streams d", title=title)
        ticks = sorted({r.configuration["num_streams"] for r in select(records, inputs=inputs)})
        axes.set_xticks(ticks, labels=[str(d) if d & (d - 1) == 0 else "" for d in ticks])
        axes.minorticks_off()
    for d, style in ((4, "o-"), (8, "s--")):
        means = [r for r in select(records, num_streams=d) if r.configuration["method"].startswith("kromhc-mean-")]
        pairs = sorted(
            (int(r.configuration["method"].rpartition("-")[2]), r.metrics["final"] - r.metrics["lowest"]) for r in means
        )
        if pairs:
            panels[2].loglog(*zip(*pairs, strict=True), style, color="#0077BB", label=f"d = {d}", markersize=5)
    panels[2].axhline(0.02 * 0.1**2 / 3, color=INK, linestyle="--", linewidth=1)
    panels[2].set(xlabel="terms averaged", title="averages")
    panels[0].set_ylabel("loss above the least possible")
    for axes in panels:
        legend(axes)
    return figure


def _excess(records: Sequence[Record], field: str) -> list[tuple[int, float]]:
    return sorted((r.configuration[field], r.metrics["final"] - r.metrics["lowest"]) for r in records)
