"""Worst sums over logit scales and depth."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.experiments.exact import LOGIT_SCALES
from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import INK, line, look, new_figure
from gomhc.lab.results.record import Record, only, select

SHOWN = ("go-s1", "go-s2", "go-s3", "mhc-lite", "kromhc", "transportation", "mhc", "mhc-linear")


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Errors over scales (d = 4) and over depth, and the numbers."""
    rows = [
        (
            look(name).label,
            *(f"{error:.0e}" for error in only(records, "MapErrors", method=name, num_streams=4).metrics["errors"]),
        )
        for name in SHOWN
    ]
    header = ("d = 4", *(f"{scale:g}" for scale in LOGIT_SCALES))
    return [
        Plot(
            draw=lambda: _draw(records),
            caption="Left: the worst row or column sum, distance from one, of 2,000 matrices in float32 over the "
            "scale of the logits. Right: that of products of matrices over depth, median of 500 chains, float64, "
            "logits of scale three.",
        ),
        Table(header=header, rows=rows, caption="Worst distance of a sum from one, by the scale of the logits."),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(8, 3.6)
    scales, depth = figure.subplots(1, 2)
    for name in SHOWN:
        errors = only(records, "MapErrors", method=name, num_streams=4).metrics["errors"]
        scales.loglog(LOGIT_SCALES, [max(error, 1e-9) for error in errors], **line(name))
    for record in select(records, "DepthErrors"):
        depths, errors = record.configuration["depths"], record.metrics["errors"]
        depth.loglog(depths, [max(error, 1e-17) for error in errors], **line(record.configuration["method"]))
    scales.axhline(2**-23, color=INK, linewidth=0.8, linestyle=":")
    scales.set(xlabel="scale of the logits", ylabel="worst |sum - 1|", title="one matrix, float32 (dots: eps)")
    depth.set(xlabel="matrices in the product", title="products, float64")
    figure.legend(*scales.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
