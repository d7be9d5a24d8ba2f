"""KL divergence from targets, and angles from start and target."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import legend
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Both over epochs."""
    caption = (
        "Left: mean KL divergence of the learned matrix from its target, in nats a row, d = 4. Right: angle between "
        "the rotation behind the matrix and that behind its target against the angle from its start, d = 3; training "
        "goes from the left to the right, and one dot is a time as long as all before it together."
    )
    return [Plot(draw=lambda: _draw(records), caption=caption)]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2)
    for record in select(records, angles=False):
        epochs = [epoch + 1 for epoch in record.metrics["epochs"]]
        left.loglog(epochs, record.metrics["divergence"], **line(record.configuration["method"]))
    for record in select(records, angles=True):
        style = line(record.configuration["method"])
        right.plot(record.metrics["from_start"], record.metrics["to_target"], marker="o", markersize=3, **style)
    left.set(xlabel="epoch + 1", ylabel="KL divergence")
    right.set(xlabel="angle from the start", ylabel="angle to the target")
    legend(left)
    legend(right)
    return figure
