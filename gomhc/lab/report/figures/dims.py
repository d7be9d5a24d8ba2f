"""Training curves for two to ten streams."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each d."""
    records = select(records, inputs="mask")
    streams = sorted({record.configuration["num_streams"] for record in records})
    panels = [(f"d = {d}", {"num_streams": d}) for d in streams]
    caption = (
        "Loss over epochs, d streams. mHC-lite has d! logits and is left out from d = 7 on; KromHC is run for powers "
        "of two."
    )
    return [curve_plot(records, panels, caption), curve_table(records, "The curves in numbers.", num_streams="d")]
