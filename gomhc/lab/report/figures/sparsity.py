"""Training curves with sparse inputs."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.training import curve_plot, curve_table
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """A panel for each d and sparsity, and the published form beside the true one."""
    masked = select(records, inputs="mask")
    pairs = sorted({(record.configuration["num_streams"], record.configuration["sparsity"]) for record in masked})
    panels = [(f"d = {d}, sparsity {level:g}", {"num_streams": d, "sparsity": level}) for d, level in pairs]
    caption = "Loss over epochs with inputs of which this share is zero. "
    table = (
        "The curves in numbers; inputs `count`: dense, times the number of entries a mask keeps, as in the published "
        "code."
    )
    return [
        curve_plot(masked, panels, caption, columns=len({level for _, level in pairs})),
        curve_table(records, table, num_streams="d", sparsity="sparsity", inputs="inputs"),
    ]
