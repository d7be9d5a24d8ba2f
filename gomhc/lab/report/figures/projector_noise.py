"""Training curves with noise on the target matrix, and the floor by formula."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot
from gomhc.lab.report.page import Exhibit, Table
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each noise, and the floor where noise is drawn anew for each sample."""
    trained = select(records, "ToyRun")
    levels = sorted({record.configuration["projector_noise"] for record in trained})
    panels = [(f"σp = {level:g}", {"projector_noise": level}) for level in levels]
    caption = (
        "Loss over epochs where each target matrix has Gaussian noise of standard deviation σp, the same for all its "
        "samples."
    )
    rows = [
        (r.configuration["num_streams"], r.metrics["loss"], r.metrics["formula"]) for r in select(records, "FloorRun")
    ]
    note = "Loss at W = T where the matrix' noise (σp = 0.1) is drawn anew for each sample, and d σp² E v² + ε²/3."
    table = Table(header=("d", "loss", "formula"), rows=sorted(rows), caption=note)
    return [*([curve_plot(trained, panels, caption)] if trained else []), table]
