"""Loss over seconds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.experiments.training_time import seconds_to_converge
from gomhc.lab.report.figures.training import floor_line, legend
from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, look, new_figure
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Curves over time, and how long an epoch takes."""
    rows = [
        (
            look(record.configuration["method"]).label,
            1e6 * record.metrics["seconds"] / record.configuration["num_epochs"],
            record.metrics["converged"],
            seconds_to_converge(record),
            record.metrics["final"],
        )
        for record in records
    ]
    header = ("method", "µs an epoch", "epochs to converge", "seconds to converge", "final loss")
    caption = "Loss over seconds of training, d = 4, one thread, one run at a time on this machine."
    return [
        Plot(draw=lambda: _draw(records), caption=caption),
        Table(header=header, rows=rows, caption="Times vary between machines; compare within the table."),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for record in records:
        an_epoch = record.metrics["seconds"] / record.configuration["num_epochs"]
        seconds = [an_epoch * (epoch + 1) for epoch in record.metrics["epochs"]]
        axes.loglog(seconds, record.metrics["loss"], **line(record.configuration["method"]))
    floor_line(axes, 0.1)
    axes.set(xlabel="seconds", ylabel="loss")
    legend(axes)
    return figure
