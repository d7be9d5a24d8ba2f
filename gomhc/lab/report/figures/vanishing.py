"""Gradients of mHC-lite at a uniform start, and Jacobians near a corner."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.figures.training import legend
from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Jacobians over the distance from a corner, and the gate."""
    gates = sorted(select(records, "GateRun"), key=lambda record: record.configuration["num_streams"])
    rows = [
        (record.configuration["num_streams"], record.metrics["gradient_at_uniform"], record.metrics["crosstalk"])
        for record in gates
    ]
    caption = (
        "Median norm of the Jacobian of the map at matrices whose mean diagonal is 1 - leak, d = 4. It vanishes at "
        "corners of the polytope for go-mHC too, as the square root of the distance, and for exponentials as the "
        "distance itself."
    )
    note = "mHC-lite at uniform weights: gradient at the logit of the wanted permutation, and crosstalk (1 - n/n!)."
    return [
        Plot(draw=lambda: _draw(select(records, "CornerRun")), caption=caption),
        Table(header=("n", "gradient", "crosstalk"), rows=rows, caption=note),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for record in records:
        axes.loglog(record.metrics["leaks"], record.metrics["jacobian_norms"], **line(record.configuration["method"]))
    axes.set(xlabel="leak (distance from the identity)", ylabel="norm of the Jacobian")
    legend(axes)
    return figure
