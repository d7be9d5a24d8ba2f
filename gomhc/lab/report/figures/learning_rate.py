"""Epochs to reach the floor over the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import legend
from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, look, new_figure
from gomhc.lab.results.record import Record, select

STARTS = {None: "starts of the paper's code", "near-identity": "starts near the identity"}


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Curves over rates, and what Adam's epsilon does."""
    caption = (
        "Epochs until the loss is within 5 % of the least that is possible on the samples, over Adam's rate, d = 4. "
        "Where a curve ends the loss was not reached within the run. The paper compares at 1e-3, the left edge."
    )
    rows = [
        (
            look(record.configuration["method"]).label,
            record.configuration["epsilon"],
            record.metrics["reached"],
            record.metrics["final"],
        )
        for record in select(records, learning_rate=1e-3, start=None)
    ]
    note = (
        "At the paper's rate of 1e-3, with Adam's epsilon as in the paper (1e-6) and without any to speak of (1e-12)."
    )
    return [
        Plot(draw=lambda: _draw(records), caption=caption),
        Table(header=("method", "Adam's epsilon", "epochs", "final loss"), rows=rows, caption=note),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    usual = select(records, epsilon=1e-6)
    starts = [start for start in STARTS if select(usual, start=start)]
    figure = new_figure(4.6 * len(starts) + 1.5, 4)
    panels = figure.subplots(1, len(starts), sharey=True, squeeze=False)[0]
    for axes, start in zip(panels, starts, strict=True):
        mine, never = select(usual, start=start), []
        for method in dict.fromkeys(record.configuration["method"] for record in mine):
            pairs = sorted(
                (record.configuration["learning_rate"], record.metrics["reached"])
                for record in select(mine, method=method)
                if record.metrics["reached"] is not None
            )
            if pairs:
                axes.loglog(*zip(*pairs, strict=True), marker="o", markersize=4, **line(method))
            else:
                never.append(look(method).label)
        if never:
            axes.text(0.98, 0.96, f"at no rate: {', '.join(never)}", transform=axes.transAxes, ha="right", va="top")
        axes.set(xlabel="learning rate", title=STARTS[start])
    panels[0].set_ylabel("epochs to reach the floor")
    legend(panels[0])
    return figure
