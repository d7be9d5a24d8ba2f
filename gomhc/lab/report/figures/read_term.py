"""Training curves with a read term."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record

PANELS = (("read weights given", {"objective": "read-fixed"}), ("read weights learned", {"objective": "read-learned"}))


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Given and learned read weights side by side."""
    caption = "Loss of one stream that is read from the mixture, over epochs, d = 4."
    table = curve_table(records, "The curves in numbers.", objective="read")
    return [curve_plot(records, PANELS, caption, columns=2), table]
