"""Training curves for six distributions of targets."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.targets import DISTRIBUTIONS
from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each distribution."""
    panels = [
        (name, {"targets": sampler, "target_expressivity": size}) for name, (sampler, size) in DISTRIBUTIONS.items()
    ]
    caption = "Loss over epochs for target matrices drawn in six ways, d = 4."
    table = curve_table(records, "The curves in numbers.", targets="targets", target_expressivity="s of targets")
    return [curve_plot(records, panels, caption), table]
