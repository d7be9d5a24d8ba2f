"""The terminal table of `gomhc exactness`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.table import Table

from gomhc.lab.bench.marginal_errors import LOGIT_SCALES, NUM_CHANNELS, STREAMS, MarginalErrors


def exactness_table(measurements: Sequence[MarginalErrors]) -> Table:
    """Return a table with a row for each method and number of streams."""
    table = Table(
        title="Parametrizations of doubly stochastic matrices",
        caption=f"float32, {torch.get_num_threads()} threads; error@x: largest |row or column sum - 1| with logits of "
        f"scale x; parameters: of one layer with {NUM_CHANNELS} channels; µs: time per matrix in a batch",
    )
    for name in ("method", "promise"):
        table.add_column(name, min_width=12)
    errors = [f"error@{scale:g}" for scale in LOGIT_SCALES]
    for name in ("d", "logits", "parameters", *errors, "µs forward", "µs + backward"):
        table.add_column(name, justify="right", no_wrap=True)
    for measurement in measurements:
        table.add_row(
            measurement.method,
            measurement.promise,
            str(measurement.num_streams),
            f"{measurement.num_logits:,}",
            f"{measurement.num_parameters:,}",
            *(f"{error:.0e}" if error else "0" for error in measurement.marginal_errors.values()),
            f"{measurement.forward_microseconds:.3g}",
            f"{measurement.training_microseconds:.3g}",
            end_section=measurement.num_streams == STREAMS[-1],
        )
    return table
