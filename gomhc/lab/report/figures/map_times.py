"""Times of the maps."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.page import Exhibit, Table
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """One row a method and size, beside the Sinkhorn iteration at that size."""
    metrics = records[0].metrics
    fastest = {
        row["d"]: min(other["milliseconds"] for other in metrics["rows"] if other["d"] == row["d"])
        for row in metrics["rows"]
    }
    rows = [
        (
            row["method"],
            row["d"],
            row["s"],
            f"{row['milliseconds']:.3g}",
            f"{row['spread']:.2g}",
            f"{row['milliseconds'] / fastest[row['d']]:.3g}",
        )
        for row in metrics["rows"]
    ]
    caption = (
        f"{metrics['rows'][0]['matrices']:,} matrices, forward and backward, float32, {metrics['threads']} threads: "
        "median over rounds in which all take turns. Names as in the registry; s applies to go."
    )
    header = ("method", "d", "s", "ms", "interquartile range", "times the fastest")
    return [Table(header=header, rows=rows, caption=caption)]
