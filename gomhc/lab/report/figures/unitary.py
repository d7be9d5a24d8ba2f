"""Training curves of orthogonal and unitary matrices."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.unitary import CASES, NOISES
from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each case and noise."""
    panels = [
        (f"{case}\nε = {noise:g}, σp = {sigma:g}",
         {"targets": targets, "num_streams": d, "noise": noise, "projector_noise": sigma})
        for case, (targets, d) in CASES.items() for noise, sigma in NOISES
    ]  # fmt: skip
    caption = "Loss over epochs of blockwise squared norms of orthogonal and of unitary matrices, s = 2."
    table = curve_table(
        records, "The curves in numbers.", targets="targets", num_streams="d", noise="ε", projector_noise="σp"
    )
    return [curve_plot(records, panels, caption), table]
