"""Parameters and FLOPs over the number of streams (fig. 5), and the tables."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, look, new_figure
from gomhc.lab.results.record import Record, select

COLUMNS = (2, 4, 8, 16, 32)


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Fig. 5, its twin for FLOPs, and both as tables."""
    counts = select(records, "Counts")
    return [
        Plot(
            draw=lambda: _draw(counts),
            caption="Left: learned parameters of one hyper-connection of 384 channels by table 1, as fig. 5 draws "
            "them. Right: FLOPs of one projection by app. B.6. KromHC for powers of two.",
        ),
        _table(
            counts, "table_1", "Parameters of one hyper-connection, C = 384 (table 1); the layer has exactly these."
        ),
        _table(counts, "flops_paper", "FLOPs of one projection, C = 384 (app. B.6)."),
    ]


def _draw(counts: Sequence[Record]) -> Figure:
    figure = new_figure(8, 4)
    parameters, flops = figure.subplots(1, 2)
    for record in counts:
        name = record.configuration["method"]
        for axes, what in ((parameters, "table_1"), (flops, "flops_paper")):
            axes.loglog(record.metrics["streams"], record.metrics[what], **line(name))
    for axes, label in ((parameters, "learned parameters"), (flops, "FLOPs")):
        axes.set(xlabel="streams d", ylabel=label, ylim=(1e3, 1e14), xticks=COLUMNS, xticklabels=map(str, COLUMNS))
        axes.minorticks_off()
    figure.legend(*parameters.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _table(counts: Sequence[Record], what: str, caption: str) -> Table:
    rows = []
    for record in counts:
        values = dict(zip(record.metrics["streams"], record.metrics[what], strict=True))
        shown = [float(values[d]) if values[d] > 1e12 else round(values[d]) for d in COLUMNS]
        rows.append((look(record.configuration["method"]).label, *(f"{v:.1e}" if v > 1e12 else v for v in shown)))
    return Table(header=("method", *(f"d = {d}" for d in COLUMNS)), rows=rows, caption=caption)
