"""Training curves of four maps onto rotations."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """One panel."""
    caption = (
        "Loss over epochs of go-mHC with s = 2, d = 4, and four maps onto rotations, all from logits of the same "
        "distribution."
    )
    return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
