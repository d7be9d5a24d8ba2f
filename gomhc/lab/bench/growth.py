"""The plot of `gomhc bench projection --grow`: time of one matrix over d and s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from gomhc.lab.bench.projection import GO, GROWTH, SOLVE
from gomhc.lab.bench.timing import Timing


def growth_plot(timings: Sequence[Timing], file: Path) -> None:
    """Time of one matrix over d, a line for each s: go-mHC drawn through, the batched solve dashed."""
    microseconds = {
        (row.method, row.sizes["d"], row.sizes["s"]): 1e3 * row.milliseconds / row.sizes["matrices"] for row in timings
    }
    streams, blocks = (sorted({size[axis] for size in GROWTH}) for axis in (0, 1))
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, s in enumerate(blocks):
        for method, style, label in ((GO, "o-", "go"), (SOLVE, "s--", "solve")):
            times = [microseconds[method, d, s] for d in streams]
            axes.loglog(streams, times, style, color=f"C{index}", markersize=4, label=f"{label}, s = {s}")
    axes.set_xticks(streams, labels=[str(d) for d in streams])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("streams d")
    axes.set_ylabel("µs for one matrix, forward and backward")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=150)
