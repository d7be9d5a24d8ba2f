"""The Karpelevič regions of two to five streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import INK, new_figure
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A disc for each d."""
    caption = (
        "The Karpelevič region (blue) in the unit circle, roots of unity up to order d (red), and the union of "
        "regular polygons with up to d sides (dashed): from d = 4 on the region is a little larger than the union "
        "that the paper's caption describes."
    )
    return [Plot(draw=lambda: _draw(records), caption=caption)]


def _draw(records: Sequence[Record]) -> Figure:
    ordered = sorted(records, key=lambda record: record.configuration["num_streams"])
    figure = new_figure(9.6, 2.8)
    for axes, record in zip(np.atleast_1d(figure.subplots(1, len(ordered))), ordered, strict=True):
        d = record.configuration["num_streams"]
        x, y = np.array(record.metrics["boundary"]).T
        axes.fill(np.r_[x, x[::-1]], np.r_[y, -y[::-1]], color="#33BBEE", alpha=0.35, linewidth=0)
        axes.plot(np.r_[x, x[::-1]], np.r_[y, -y[::-1]], color="#0077BB", linewidth=1.2)
        outline(axes)
        for sides in range(3, d + 1):
            corners = np.exp(2j * np.pi * np.arange(sides + 1) / sides)
            axes.plot(corners.real, corners.imag, "--", color=INK, linewidth=0.6)
        roots = np.exp(2j * np.pi * np.array([a / b for b in range(1, d + 1) for a in range(b)]))
        axes.plot(roots.real, roots.imag, "o", color="#CC3311", markersize=4)
        axes.set_title(f"d = {d}")
    return figure


def outline(axes: Axes, *polygons: int) -> None:
    """The unit circle, regular polygons with so many sides, and axes without ticks."""
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 181))
    axes.plot(circle.real, circle.imag, color=INK, linewidth=0.8)
    for sides, color in zip(polygons, ("#0077BB", "#009988"), strict=False):
        corners = np.exp(2j * np.pi * np.arange(sides + 1) / sides)
        axes.plot(corners.real, corners.imag, color=color, linewidth=1)
    axes.set(xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), aspect="equal")
    axes.set_axis_off()
