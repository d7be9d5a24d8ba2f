"""Histograms of reachable eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from gomhc.lab.report.figures.karpelevic import outline
from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import look, new_figure
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each method, for each d."""
    plots: list[Exhibit] = [
        Plot(
            draw=lambda d=d: draw_reach(select(records, num_streams=d)),  # type: ignore[misc]
            caption=f"Eigenvalues that matrices of each method reach, d = {d}: darker cells hold more (logarithmic). "
            "Lines: the unit circle, triangle and square.",
        )
        for d in sorted({record.configuration["num_streams"] for record in records})
    ]
    rows = [
        (
            look(record.configuration["method"]).label,
            record.configuration["num_streams"],
            *(record.metrics[name] for name in ("share", "outside_share", "outside_distance")),
        )
        for record in records
    ]
    header = ("method", "d", "share of the region reached", "share of eigenvalues outside", "largest distance outside")
    return [
        *plots,
        Table(header=header, rows=rows, caption="Cells of side 0.05 count as reached if one eigenvalue falls in."),
    ]


def draw_reach(records: Sequence[Record]) -> Figure:
    """Histograms side by side, three in a row."""
    columns = min(3, len(records))
    rows = math.ceil(len(records) / columns)
    figure = new_figure(3 * columns, 3.2 * rows)
    grid = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
    for axes, record in zip(grid, records, strict=False):
        heat(axes, np.array(record.metrics["histogram"]))
        d = record.configuration["num_streams"]
        outline(axes, *range(3, d + 1))
        axes.set_title(look(record.configuration["method"]).label)
    for axes in grid[len(records) :]:
        axes.set_axis_off()
    return figure


def heat(axes: Axes, counts: np.ndarray) -> None:
    """Counts over the square from -1 to 1, empty cells transparent."""
    shown = np.ma.masked_equal(counts.T, 0)
    norm = LogNorm(1, max(2, counts.max()))
    axes.imshow(shown, origin="lower", extent=(-1, 1, -1, 1), norm=norm, cmap="viridis_r", interpolation="nearest")
