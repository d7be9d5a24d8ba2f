"""Loss and gradient norm of language models."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, look, new_figure
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Curves for four and for eight streams, and their ends."""
    rows = [
        (
            look(record.configuration["method"]).label,
            "" if record.configuration["method"] == "residual" else record.configuration["num_streams"],
            f"{record.metrics['last_loss']:.4f}",
            f"{record.metrics['validation_loss']:.4f}",
            f"{record.metrics['jitter']:.3f}",
            f"{record.metrics['largest_norm']:.2f}",
        )
        for record in records
    ]
    return [
        Plot(
            draw=lambda: _draw(select(records, num_streams=4)),
            caption="Loss and gradient norm (before clipping), d = 4.",
        ),
        Plot(draw=lambda: _draw(select(records, num_streams=8)), caption="The same with d = 8."),
        Table(
            header=("method", "d", "last training loss", "validation loss", "mean jitter", "largest gradient norm"),
            rows=rows,
            caption="Loss in nats a token; the training loss is the mean over the last tenth of the steps. Jitter is "
            "the standard deviation over the mean of ten gradient norms in a row, behind the warm-up (app. G.2).",
        ),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(8, 3.6)
    loss, norm = figure.subplots(1, 2)
    for record in records:
        style = line(record.configuration["method"])
        loss.plot(record.metrics["steps"], record.metrics["losses"], **style)
        norm.semilogy(record.metrics["steps"], record.metrics["gradient_norms"], **style)
    loss.set(xlabel="step", ylabel="training loss, nats a token")
    norm.set(xlabel="step", ylabel="gradient norm")
    figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
