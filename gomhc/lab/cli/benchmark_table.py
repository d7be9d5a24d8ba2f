"""The terminal table of `gomhc bench`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gomhc.lab.bench.timing import Benchmark, Timing


def benchmark_table(benchmark: Benchmark, timings: Sequence[Timing]) -> Table:
    """Return a table of time, memory and ratios to the references, with a section for each set of sizes."""
    shared, varying = _shared_and_varying_sizes(timings)
    remarks = (
        *shared,
        f"float32; threads = {benchmark.threads}; rounds = {benchmark.rounds}",
        "ms: median over rounds",
        "spread: interquartile range in ms",
        "MB: peak memory of a call, without its inputs",
        "/: time as a multiple of that method's",
        *benchmark.remarks(),
    )
    table = Table(title=benchmark.title, caption="; ".join(remarks))
    references = [name for name in benchmark.references if any(timing.method == name for timing in timings)]
    table.add_column("method", no_wrap=True)
    for name in (*varying, "ms", "spread", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in references:
        table.add_column(f"/ {name}", justify="right")
    for timing, following in zip(timings, [*timings[1:], None], strict=True):
        table.add_row(
            timing.method,
            *(f"{timing.sizes[name]:,}" for name in varying),
            _short(timing.milliseconds),
            _short(timing.spread),
            f"{timing.megabytes:,.1f}",
            *(_short(timing.ratios[name]) if name in timing.ratios else "" for name in references),
            end_section=following is not None and following.sizes != timing.sizes,
        )
    return table


def _shared_and_varying_sizes(timings: Sequence[Timing]) -> tuple[list[str], list[str]]:
    """Sizes that are the same in all rows, for the caption, and the names of the others, for columns."""
    sizes = {name: {timing.sizes[name] for timing in timings} for name in timings[0].sizes}
    shared = [f"{name} = {min(distinct):,}" for name, distinct in sizes.items() if len(distinct) == 1]
    return shared, [name for name, distinct in sizes.items() if len(distinct) > 1]


def _short(number: float) -> str:
    """Three digits, or all digits before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
