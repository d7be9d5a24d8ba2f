"""Training curves and their tables, which all experiments on convergence share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gomhc.lab.exhibits.exhibit import Cell, Plot, Table
from gomhc.lab.exhibits.style import INK, line, look, new_figure
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Sequence[tuple[str, Mapping[str, Any]]]
"""Title and configuration of each."""


def curve(axes: Axes, record: Record, **style: Any) -> None:
    """Mean loss over epochs, quartiles of targets shaded, and a dot where it has converged; epoch 0 is drawn at 1."""
    epochs = [epoch + 1 for epoch in record.metrics["epochs"]]
    style = {**line(record.configuration["method"]), **style}
    axes.loglog(epochs, record.metrics["loss"], **style)
    axes.fill_between(epochs, *record.metrics["quartiles"], color=style["color"], alpha=0.12, linewidth=0)
    converged = record.metrics["converged"]
    nearest = min(range(len(epochs)), key=lambda index: abs(epochs[index] - 1 - converged))
    axes.plot(epochs[nearest], record.metrics["loss"][nearest], "o", color=style["color"], markersize=5)


def floor_line(axes: Axes, noise: float) -> None:
    """The noise floor, dotted."""
    axes.axhline(noise**2 / 3, color=INK, linestyle=":", linewidth=1)


def curve_grid(records: Sequence[Record], panels: Panels, columns: int = 3, size: float = 2.6) -> Figure:
    """One panel a configuration, all methods in each; panels without records are left out."""
    panels = [(title, where) for title, where in panels if select(records, **where)]
    columns = max(1, min(columns, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    figure = new_figure(max(6.4, 1.25 * size * columns), size * rows + 0.9)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axes, (title, where) in zip(grid.flat, panels, strict=False):
        for record in select(records, **where):
            curve(axes, record)
            if not record.configuration["objective"].startswith("read"):  # a read stream's noise is another
                floor_line(axes, record.configuration["noise"])
        axes.set_title(title)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("epoch + 1")
    for axes in grid[:, 0]:
        axes.set_ylabel("loss")
    shared_legend(figure, grid.flat)
    return figure


def legend(axes: Axes, **where: Any) -> None:
    """A legend, unless there is nothing to tell apart."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**where)


def shared_legend(figure: Figure, panels: Any) -> None:
    """One legend below all panels, each label once."""
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, len(handles)))


def curve_plot(records: Sequence[Record], panels: Panels, caption: str, columns: int = 3) -> Plot:
    """The grid as an exhibit."""
    explained = " Lines: mean over targets; shade: quartiles; dot: within 5 % of the last loss; dotted: ε²/3."
    return Plot(draw=lambda: curve_grid(records, panels, columns), caption=caption + explained)


def curve_table(records: Sequence[Record], caption: str, **columns: str) -> Table:
    """One row a record: method, the fields that are asked for (field -> header), and what came out."""
    header = ("method", *columns.values(), "first loss", "final loss", "over the least possible", "epochs to converge")
    rows: list[Sequence[Cell]] = [
        (
            look(record.configuration["method"]).label,
            *(record.configuration[field] for field in columns),
            record.metrics["first"],
            record.metrics["final"],
            record.metrics["final"] / record.metrics["lowest"] if record.metrics["lowest"] else None,
            record.metrics["converged"],
        )
        for record in records
    ]
    return Table(header=header, rows=rows, caption=caption)
