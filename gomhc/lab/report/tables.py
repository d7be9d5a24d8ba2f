"""How does a table of results look in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.table import Table

from gomhc.lab.bench import exactness
from gomhc.lab.bench.timing import Benchmark, Row


def exactness_table(found: Sequence[exactness.Row]) -> Table:
    """How exact each parametrization is, and what it costs."""
    table = Table(
        title="Parametrizations of doubly stochastic matrices",
        caption=f"float32, {torch.get_num_threads()} threads; error: worst |row or column sum - 1| at logits of that "
        f"scale; parameters: one layer of {exactness.NUM_CHANNELS} channels; µs: one matrix of a batch",
    )
    for name in ("method", "promise"):
        table.add_column(name)
    scales = [f"error@{scale:g}" for scale in exactness.LOGIT_SCALES]
    for name in ("d", "logits", "parameters", *scales, "µs forward", "µs + backward"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        table.add_row(
            row.method,
            row.promise,
            str(row.num_streams),
            f"{row.num_logits:,}",
            f"{row.num_parameters:,}",
            *(f"{error:.0e}" if error else "0" for error in row.marginal_errors.values()),
            f"{row.forward_microseconds:.3g}",
            f"{row.training_microseconds:.3g}",
            end_section=row.num_streams == exactness.STREAMS[-1],
        )
    return table


def benchmark_table(benchmark: Benchmark, found: Sequence[Row]) -> Table:
    """Each method's time, memory, and time as a multiple of the references'; a section for all of equal sizes."""
    same, differing = _sizes(found)
    remarks = (
        *same,
        f"float32; threads = {benchmark.threads}; rounds = {benchmark.rounds}",
        "ms: median over rounds, in which all take turns",
        "spread: interquartile range in ms",
        "MB: peak memory beyond what is held before",
        "/: time as a multiple of that method's",
        *benchmark.remarks(),
    )
    table = Table(title=benchmark.title, caption="; ".join(remarks))
    references = [name for name in benchmark.references if any(row.method == name for row in found)]
    table.add_column("method", no_wrap=True)
    for name in (*differing, "ms", "spread", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in references:
        table.add_column(f"/ {name}", justify="right")
    for row, following in zip(found, [*found[1:], None], strict=True):
        table.add_row(
            row.method,
            *(f"{row.sizes[name]:,}" for name in differing),
            _short(row.milliseconds),
            _short(row.spread),
            f"{row.megabytes:,.1f}",
            *(_short(row.ratios[name]) if name in row.ratios else "" for name in references),
            end_section=following is not None and following.sizes != row.sizes,
        )
    return table


def _sizes(found: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Sizes that all rows share, for the caption, and the names of the others, for columns."""
    values = {name: {row.sizes[name] for row in found} for name in found[0].sizes}
    same = [f"{name} = {min(sizes):,}" for name, sizes in values.items() if len(sizes) == 1]
    return same, [name for name, sizes in values.items() if len(sizes) > 1]


def _short(number: float) -> str:
    """Three digits, or all that are before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
