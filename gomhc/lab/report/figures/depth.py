"""Second eigenvalue over depth."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record, select

NAMES = {0: "mhc-lite", 1: "go-s1", 2: "go-s2", 3: "go-s3"}


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Quartiles for d = 4 and 8."""
    caption = (
        "Second largest modulus of an eigenvalue of the product of random doubly stochastic matrices: median, "
        "quartiles shaded. Haar-random rotations of expressivity s; for mHC-lite, weights uniform on the simplex."
    )
    return [Plot(draw=lambda: _draw(records), caption=caption)]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(8, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for d, axes in zip((4, 8), panels, strict=True):
        for record in select(records, num_streams=d):
            style = line(NAMES[record.configuration["expressivity"]])
            low, middle, high = zip(*record.metrics["quartiles"], strict=True)
            depth = range(1, len(middle) + 1)
            axes.semilogy(depth, middle, **style)
            axes.fill_between(depth, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.set(xlabel="matrices in the product", title=f"d = {d}", ylim=(1e-16, 1.5))
    panels[0].set_ylabel("second eigenvalue, modulus")
    panels[0].legend()
    return figure
