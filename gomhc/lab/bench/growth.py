"""The plot of `gomhc bench projection --grow`: time of one matrix over d and s, and of one multiply-add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from gomhc.lab.bench.operations import FACTORS, PRODUCT_OF_GO, map_operations
from gomhc.lab.bench.projection import GO, GROWTH, SOLVE
from gomhc.lab.bench.timing import Timing


def growth_plot(timings: Sequence[Timing], file: Path) -> None:
    """Time of one matrix over d, a line for each s: go-mHC solid, its Kronecker products dotted, the solve dashed.

    Beside it, the time of go-mHC over its number of multiply-adds: level where no size is at a disadvantage.
    """
    microseconds = {
        (row.method, row.sizes["d"], row.sizes["s"]): 1e3 * row.milliseconds / row.sizes["matrices"] for row in timings
    }
    streams, blocks = (sorted({size[axis] for size in GROWTH}) for axis in (0, 1))
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes, per_operation = figure.subplots(1, 2)
    for index, s in enumerate(blocks):
        products = [microseconds[PRODUCT_OF_GO, d, s] for d in FACTORS]
        axes.loglog(list(FACTORS), products, "^:", color=f"C{index}", markersize=4, label=f"{PRODUCT_OF_GO}, s = {s}")
        costs = [1e6 * microseconds[GO, d, s] / map_operations(GO, d, s) for d in streams]
        per_operation.loglog(streams, costs, "o-", color=f"C{index}", markersize=4, label=f"go, s = {s}")
        for method, style, label in ((GO, "o-", "go"), (SOLVE, "s--", "solve")):
            times = [microseconds.get((method, d, s), math.nan) for d in streams]  # the solve has a largest size
            axes.loglog(streams, times, style, color=f"C{index}", markersize=4, label=f"{label}, s = {s}")
    axes.set_ylabel("µs for one matrix, forward and backward")
    per_operation.set_ylabel("ps for one multiply-add of 4 n³")
    for panel in (axes, per_operation):
        panel.set_xticks(streams, labels=[str(d) for d in streams])
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("streams d")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(file, dpi=150)
