"""How does an inspection look in a terminal?"""

from __future__ import annotations

from rich.table import Table

from gomhc.inspection import Inspection

COLUMNS = {
    "‖mix − I‖": "distance_to_identity",
    "entropy": "entropy",
    "|λ₂|": "second_eigenvalue",
    "|λ₂| so far": "composite_second_eigenvalue",
    "gain →": "gain_forward",
    "gain ←": "gain_backward",
    "sums off by": "marginal_error",
    "similarity": "similarity",
    "spread": "stream_spread",
}
"""Heading -> what is shown of every connection."""
LEGEND = (
    "entropy of mix: 0 permutes, 1 averages; |λ₂|: second eigenvalue of mix, and of all mixes so far; "
    "gain: worst amplification of a signal up to here, of a gradient down to here; similarity (cosine) and spread "
    "(distance from their mean, as a share of it) of the streams that enter; ∂: norm of the gradient at the logits"
)


def inspection_table(inspection: Inspection) -> Table:
    """A row for each connection, in the order of the forward pass."""
    title = f"{inspection.num_streams} streams, {len(inspection.names)} connections, {inspection.num_tokens} tokens"
    table = Table(title=f"{title}, loss {inspection.loss:.4f}", caption=LEGEND)
    table.add_column("connection", no_wrap=True)
    for heading in ("read", "write", *COLUMNS, "∂ read", "∂ write", "∂ mix"):
        table.add_column(heading, justify="right", no_wrap=True)
    for index, name in enumerate(inspection.names):
        table.add_row(
            name,
            _span(inspection.read_mean[index].tolist()),
            _span(inspection.write_mean[index].tolist()),
            *(_short(getattr(inspection, field)[index].item()) for field in COLUMNS.values()),
            *(f"{norm:.0e}" for norm in inspection.coefficient_gradient[index].tolist()),
        )
    return table


def _span(values: list[float]) -> str:
    """From the smallest to the largest, over streams."""
    return f"{min(values):.2f}–{max(values):.2f}"


def _short(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e3 else f"{value:.0e}"
