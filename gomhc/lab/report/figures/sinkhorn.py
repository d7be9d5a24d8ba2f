"""Training curves with and without exponentials."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """One panel."""
    caption = (
        "Loss over epochs, d = 4: Sinkhorn-Knopp in the logarithm and of absolute values, and go-mHC with a softmax "
        "it does not need."
    )
    return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
