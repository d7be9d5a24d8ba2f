"""The terminal table of `gomhc inspect`."""

from __future__ import annotations

from rich.table import Table

from gomhc.inspection import Inspection
from gomhc.lab.report.inspection_columns import COLUMNS, GRADIENTS

LEGEND = (
    "read, write: smallest to largest over streams; entropy of mix: 0 for a permutation, 1 for averaging; |λ₂|: second "
    "eigenvalue of mix, and of the product of all mixes so far; gain →: largest amplification of a signal from the "
    "first connection to this one; gain ←: of a gradient from the last connection to this one; sum error: largest |row "
    "or column sum − 1|; similarity: mean cosine between the input streams; spread: distance of the input streams from "
    "their mean, relative to the mean; ∂: norm of the gradient at the logits"
)


def inspection_table(inspection: Inspection) -> Table:
    """Return a table with a row for each connection, in the order of the forward pass."""
    title = f"{inspection.num_streams} streams, {len(inspection.names)} connections, {inspection.num_tokens} tokens"
    table = Table(title=f"{title}, loss {inspection.loss:.4f}", caption=LEGEND)
    table.add_column("connection", no_wrap=True)
    for heading in ("read", "write", *COLUMNS, *GRADIENTS):
        table.add_column(heading, justify="right", no_wrap=True)
    for index, name in enumerate(inspection.names):
        table.add_row(
            name,
            _range(inspection.read_mean[index].tolist()),
            _range(inspection.write_mean[index].tolist()),
            *(_short(getattr(inspection, field)[index].item()) for field in COLUMNS.values()),
            *(f"{norm:.0e}" for norm in inspection.coefficient_gradient[index].tolist()),
        )
    return table


def _range(coefficients: list[float]) -> str:
    return f"{min(coefficients):.2f}–{max(coefficients):.2f}"


def _short(number: float) -> str:
    return f"{number:.3f}" if number == 0 or 1e-3 <= abs(number) < 1e3 else f"{number:.0e}"
