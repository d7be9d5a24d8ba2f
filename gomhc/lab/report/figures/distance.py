"""Training curves of the distance between matrices."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """One panel."""
    caption = (
        "Mean squared distance of entries from a noisy target matrix (ε = 0.1, drawn anew each epoch), averaged over "
        "noise."
    )
    return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
