"""Epochs to converge and final loss over the number of streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import curve, curve_table, floor_line, shared_legend
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record, select

METHODS = ("go-s2", "mhc-lite", "kromhc")


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Both panels, with inputs as written and as coded."""
    caption = (
        "Epochs until the loss is within 5 % of its last value, and that last value, over d. Faint: with inputs times "
        "d, as in the published code, KromHC's loss grows with d; with inputs whose size does not depend on d it "
        "falls. Grey: the least that a matrix of unit sums can reach on the 100 samples, which falls below ε²/3 "
        "(dotted) as d grows. Right: curves at the largest d."
    )
    written = select(records, inputs="mask")
    table = curve_table(written, "Inputs in [0, 1).", num_streams="d")
    return [Plot(draw=lambda: _draw(records), caption=caption), table]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(9, 5.4)
    grid = figure.subplots(2, 2, width_ratios=(1.7, 1))
    written, coded = select(records, inputs="mask"), select(records, inputs="count")
    ticks = sorted({record.configuration["num_streams"] for record in records})
    largest = max(
        (record.configuration["num_streams"] for record in select(written, method="kromhc")), default=ticks[-1]
    )
    for axes, name, label in zip(grid[:, 0], ("converged", "final"), ("epochs to converge", "final loss"), strict=True):
        for method in METHODS:
            _over_streams(axes, written, method, name)
            _over_streams(axes, coded, method, name, alpha=0.35, label=None)
        axes.set(ylabel=label, xscale="log", yscale="log")
        axes.set_xticks(ticks, labels=[str(d) for d in ticks])
        axes.minorticks_off()
    _over_streams(
        grid[1, 0], written, "go-s2", "lowest", color="#8A8A8A", linestyle="-", linewidth=4, alpha=0.4, label=None
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


def _over_streams(axes: Axes, records: Sequence[Record], method: str, name: str, **style: Any) -> None:
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
