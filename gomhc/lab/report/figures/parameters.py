"""The table of overheads of the language model."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.experiments.parameters import CHANNELS, CONNECTIONS, PRINTED, Parameters
from gomhc.lab.report.page import Exhibit, Table
from gomhc.lab.report.style import look
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Printed overheads beside counted ones."""
    overheads = Parameters.overheads(records)
    rows = [
        (
            look(method).label,
            d,
            f"{printed:.2f}",
            f"{overheads[method, d]['square'] + CONNECTIONS * d * CHANNELS / 1e6:.3f}",
            f"{overheads[method, d]['square']:.3f}",
            f"{overheads[method, d]['triangle']:.3f}",
        )
        for (method, d), printed in PRINTED.items()
    ]
    header = ("method", "d", "printed", "counted, with the norm's gain", "counted", "with n(n - 1)/2 logits")
    caption = (
        "Overhead in millions over the plain network. The paper's code has n² logits for go-mHC and a learned gain of "
        "d C in the norm of each of the twelve connections; table 1 and this library have no such gain."
    )
    return [Table(header=header, rows=rows, caption=caption)]
