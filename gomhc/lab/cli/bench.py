"""`gomhc bench`: what do the methods cost beside each other?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from gomhc.lab.bench import timing
from gomhc.lab.bench.layer import Layer
from gomhc.lab.bench.projection import Projection
from gomhc.lab.bench.step import Step
from gomhc.lab.cli.terminal import needs, table_console, with_progress, write_json
from gomhc.lab.files import require_writable
from gomhc.lab.report import tables
from gomhc.version import __version__


def bench(
    benchmark: Annotated[
        Projection | Layer | Step,
        tyro.conf.arg(name=""),
        tyro.conf.OmitSubcommandPrefixes,
    ],
) -> None:
    """Time the methods beside each other: the maps alone, a whole layer, or a training step."""
    if isinstance(benchmark, Projection) and benchmark.grow:
        with needs("report", "--grow"):
            from gomhc.lab.bench.growth import growth_plot
    for file in (benchmark.json, benchmark.plot if isinstance(benchmark, Projection) and benchmark.grow else None):
        if file is not None:
            require_writable(file)
    torch.set_num_threads(benchmark.threads)
    contenders = benchmark.contenders()
    turns = timing.turns(contenders, benchmark.rounds)
    turns_with_progress = with_progress(turns, timing.num_turns(contenders, benchmark.rounds))
    found = timing.rows(list(turns_with_progress), benchmark.references)
    table_console().print(tables.benchmark_table(benchmark, found))
    if benchmark.json is not None:
        write_json(benchmark.json, _record(benchmark, found))
    if isinstance(benchmark, Projection) and benchmark.grow:
        growth_plot(found, benchmark.plot)
        print(f"wrote {benchmark.plot}")


def _record(benchmark: timing.Benchmark, found: list[timing.Row]) -> dict[str, Any]:
    """The rows, and what is needed to measure them again."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(benchmark).items()}
    versions = {"gomhc": __version__, "torch": torch.__version__}
    rows = [asdict(row) for row in found]
    return {"benchmark": type(benchmark).__name__.lower(), "options": options, "versions": versions, "rows": rows}
