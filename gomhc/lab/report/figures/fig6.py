"""Training curves of four streams, with inputs as written and as coded."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record, select

PANELS = (
    ("inputs in [0, 1)", {"inputs": "mask"}),
    ("inputs times d, as in the published code", {"inputs": "count"}),
)


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Curves and numbers."""
    caption = (
        "Loss of a 4-stream mixing task, ε = 0.1. Left: the task as the paper describes it. Right: the published code "
        "multiplies its inputs by the number of entries that a mask keeps, which is d where nothing is sparse. "
        "Transportation and identity are not in the paper."
    )
    records = select(records, "ToyRun")
    return [
        curve_plot(records, PANELS, caption, columns=2),
        curve_table(
            records,
            "The curves in numbers; least possible: over matrices of unit sums, on these samples.",
            inputs="inputs",
        ),
    ]
