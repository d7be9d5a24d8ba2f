"""Loss of mHC-lite against loss of go-mHC while both train."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import curve_plot, legend
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import INK, new_figure
from gomhc.lab.results.record import Record, select

NAMES = {"adam": "Adam, η = 1e-3", "sgd": "SGD, η = 0.1"}


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """The phase space of each optimizer, and the curves behind it."""
    caption = (
        "Training goes from the upper right to the lower left; above the dashed diagonal go-mHC (s = 2) has the lower "
        "loss at the same epoch. The loss is that of the matrix, averaged over the noise, which is drawn anew each "
        "epoch."
    )
    noises = sorted({record.configuration["noise"] for record in records})
    panels = [(f"{NAMES[o]}, ε = {noise:g}", {"optimizer": o, "noise": noise}) for o in NAMES for noise in noises]
    return [
        Plot(draw=lambda: _draw(records, noises), caption=caption),
        curve_plot(records, panels, "The loss curves behind it.", columns=max(2, len(noises))),
    ]


def _draw(records: Sequence[Record], noises: Sequence[float]) -> Figure:
    figure = new_figure(7.6, 3.9)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    colors = ("#0077BB", "#009988", "#EE7733", "#CC3311")
    for axes, optimizer in zip(panels, NAMES, strict=True):
        for color, noise in zip(colors, noises, strict=False):
            pair = [
                select(records, optimizer=optimizer, noise=noise, method=method) for method in ("go-s2", "mhc-lite")
            ]
            if all(pair):
                go, lite = (found[0].metrics["loss"] for found in pair)
                axes.loglog(go, lite, color=color, label=f"ε = {noise:g}")
                axes.plot(go[-1], lite[-1], "o", color=color, markersize=5)
        low, high = axes.get_xlim()
        axes.plot((low, high), (low, high), "--", color=INK, linewidth=1)
        axes.fill_between((low, high), (low, high), (high, high), color="#009988", alpha=0.08, linewidth=0)
        axes.set(xlabel="loss of go-mHC, s = 2", title=NAMES[optimizer], xlim=(low, high))
    panels[0].set_ylabel("loss of mHC-lite")
    legend(panels[0], loc="lower right")
    return figure
