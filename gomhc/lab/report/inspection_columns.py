"""The measures that the terminal table and the page show for every connection of an inspected model."""

from __future__ import annotations

COLUMNS = {
    "‖mix − I‖": "distance_to_identity",
    "entropy": "entropy",
    "|λ₂|": "second_eigenvalue",
    "|λ₂| so far": "composite_second_eigenvalue",
    "gain →": "gain_forward",
    "gain ←": "gain_backward",
    "sum error": "marginal_error",
    "similarity": "similarity",
    "spread": "stream_spread",
}
"""Heading -> attribute of `Inspection` with one value per connection."""
GRADIENTS = ("∂ read", "∂ write", "∂ mix")
"""Headings of the columns of `Inspection.coefficient_gradient`."""
