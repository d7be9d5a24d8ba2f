"""The triangle of the 3-cycle, and views of the polytope in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure

from gomhc.lab.report.figures.spectra import heat
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import INK, new_figure
from gomhc.lab.results.record import Record, select

VIEWS = ((0, 1, 2), (0, 3, 1))
"""Which three of the four coordinates are shown."""


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Both figures."""
    triangle = (
        "Random s-orthostochastic matrices of d = 3 projected on the plane of the 3-cycle: darker cells hold more. "
        "The triangle is the projection of the polytope, the curve a hypocycloid."
    )
    views = (
        "Matrices with s = 1 (blue) and s = 2 (orange) inside the polytope of d = 3, which has four dimensions: two "
        "choices of three of them. Dots: the six permutations, any two of which are joined by an edge."
    )
    return [
        Plot(draw=lambda: _draw_triangle(records), caption=triangle),
        Plot(draw=lambda: _draw_views(records), caption=views),
    ]


def _draw_triangle(records: Sequence[Record]) -> Figure:
    figure = new_figure(7, 3.6)
    ordered = sorted(records, key=lambda record: record.configuration["expressivity"])
    for axes, record in zip(np.atleast_1d(figure.subplots(1, len(ordered))), ordered, strict=True):
        heat(axes, np.array(record.metrics["histogram"]))
        angle = 2 * np.pi * np.arange(4) / 3
        axes.plot(np.sin(angle), np.cos(angle), color=INK, linewidth=1)
        turn = np.linspace(0, 2 * np.pi, 241)
        axes.plot(
            (2 * np.sin(turn) - np.sin(2 * turn)) / 3,
            (2 * np.cos(turn) + np.cos(2 * turn)) / 3,
            color="#CC3311",
            linewidth=1,
        )
        axes.set(title=f"s = {record.configuration['expressivity']}", xlim=(-1, 1), ylim=(-0.6, 1.05), aspect="equal")
        axes.set_axis_off()
    return figure


def _draw_views(records: Sequence[Record]) -> Figure:
    figure = new_figure(8, 4)
    for place, view in enumerate(VIEWS, start=1):
        axes = figure.add_subplot(1, 2, place, projection="3d")
        for s, color in ((2, "#EE7733"), (1, "#0077BB")):
            for record in select(records, expressivity=s):
                points = np.array(record.metrics["points"])[:, view]
                axes.scatter(*points.T, s=2, color=color, alpha=0.5, rasterized=True)
                vertices = np.array(record.metrics["vertices"])[:, view]
        for a, b in combinations(vertices, 2):
            axes.plot(*zip(a, b, strict=True), color=INK, linewidth=0.5, alpha=0.5)
        axes.scatter(*vertices.T, s=16, color="#CC3311")
        axes.set_axis_off()
    return figure
