"""Plots of eigenvalues in the unit disc, which several experiments share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import INK, look, new_figure
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reach_exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A figure for each number of streams, with a panel for each method, and a table of the shares reached."""
    plots: list[Exhibit] = [
        Plot(
            draw=partial(reach_figure, select(records, num_streams=d)),
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
    caption = "A cell of side 0.05 counts as reached if one eigenvalue falls into it."
    return [*plots, Table(header=header, rows=rows, caption=caption)]


def reach_figure(records: Sequence[Record]) -> Figure:
    """Histograms side by side, three in a row."""
    columns = min(3, len(records))
    rows = math.ceil(len(records) / columns)
    figure = new_figure(3 * columns, 3.2 * rows)
    grid = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
    for axes, record in zip(grid, records, strict=False):
        heat(axes, np.array(record.metrics["histogram"]))
        outline(axes, *range(3, record.configuration["num_streams"] + 1))
        axes.set_title(look(record.configuration["method"]).label)
    for axes in grid[len(records) :]:
        axes.set_axis_off()
    return figure


def heat(axes: Axes, counts: np.ndarray) -> None:
    """Draw counts over the square from -1 to 1; empty cells are transparent."""
    from matplotlib.colors import LogNorm

    shown = np.ma.masked_equal(counts.T, 0)
    norm = LogNorm(1, max(2, counts.max()))
    axes.imshow(shown, origin="lower", extent=(-1, 1, -1, 1), norm=norm, cmap="viridis_r", interpolation="nearest")


def outline(axes: Axes, *polygons: int) -> None:
    """Draw the unit circle and regular polygons with these numbers of sides, without axes."""
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 181))
    axes.plot(circle.real, circle.imag, color=INK, linewidth=0.8)
    for sides, color in zip(polygons, ("#0077BB", "#009988"), strict=False):
        corners = np.exp(2j * np.pi * np.arange(sides + 1) / sides)
        axes.plot(corners.real, corners.imag, color=color, linewidth=1)
    axes.set(xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), aspect="equal")
    axes.set_axis_off()
