"""`gomhc bench`: time and memory of the methods."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from gomhc.lab.bench import timing
from gomhc.lab.bench.decode import Decode
from gomhc.lab.bench.layer import Layer
from gomhc.lab.bench.layer_growth import LayerGrowth
from gomhc.lab.bench.projection import Projection
from gomhc.lab.bench.step import Step
from gomhc.lab.cli.benchmark_table import benchmark_table
from gomhc.lab.cli.terminal import needs, print_table, table_console, with_progress, write_json
from gomhc.lab.files import require_writable
from gomhc.version import __version__


def bench(
    benchmark: Annotated[
        Projection | Layer | LayerGrowth | Step | Decode,
        tyro.conf.arg(name=""),
        tyro.conf.OmitSubcommandPrefixes,
    ],
) -> None:
    """Compare the time and memory of methods: maps alone, a whole layer, a training step, or decoding one token."""
    plot = benchmark.plot if isinstance(benchmark, Projection) and benchmark.grow else None
    if plot is not None:
        with needs("report", "--grow"):
            from gomhc.lab.bench.growth import growth_plot
    for file in (benchmark.json, plot):
        if file is not None:
            require_writable(file)
    torch.set_num_threads(benchmark.threads)
    contenders = benchmark.contenders()
    turns = timing.turns(contenders, benchmark.rounds)
    turns_with_progress = with_progress(turns, timing.num_turns(contenders, benchmark.rounds))
    timings = timing.timings(list(turns_with_progress), benchmark.references)
    print_table(table_console(), benchmark_table(benchmark, timings))
    if benchmark.json is not None:
        write_json(benchmark.json, _record(benchmark, timings))
    if plot is not None:
        growth_plot(timings, plot)
        print(f"wrote {plot}")


def _record(benchmark: timing.Benchmark, timings: list[timing.Timing]) -> dict[str, Any]:
    """The timings, and the options and versions that are needed to repeat them."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(benchmark).items()}
    versions = {"gomhc": __version__, "torch": torch.__version__}
    rows = [asdict(timing) for timing in timings]
    return {"benchmark": _name(benchmark), "options": options, "versions": versions, "rows": rows}


def _name(benchmark: timing.Benchmark) -> str:
    """Its name on the command line."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(benchmark).__name__).lower()
