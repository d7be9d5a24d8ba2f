"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

try:
    import tyro
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

import torch

from gomhc import kernels
from gomhc.experiments import exactness, timing
from gomhc.experiments.bench_layer import Layer
from gomhc.experiments.bench_projection import Projection
from gomhc.experiments.bench_step import Step
from gomhc.report import tables
from gomhc.version import __version__

T = TypeVar("T")
MOST_LINES = 40
"""Of progress, where there is no terminal."""

app = tyro.extras.SubcommandApp()


@app.command
def version() -> None:
    """Print the version of gomhc and of torch."""
    print(f"gomhc {__version__}, torch {torch.__version__}")


@app.command
def doctor() -> None:
    """Say which kernels run on this machine, and why."""
    version()
    print(f"{torch.get_num_threads()} threads, CUDA {'available' if torch.cuda.is_available() else 'not available'}")
    for name, reason in kernels.reasons().items():
        print(f"{name:8} {reason}")


@app.command(name="exactness")
def exactness_table(
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None, seconds: float = 0.2
) -> None:
    """Print how exact each parametrization is, and what it costs.

    Args:
        json_file: Also write the rows to this file.
        seconds: The least time that each timing takes; more is steadier.
    """
    rows = exactness.rows(seconds)
    found = list(_with_progress(rows, exactness.num_rows(), lambda row: f"{row.method} d={row.num_streams}"))
    _table_console().print(tables.exactness_table(found))
    if json_file is not None:
        _write_json(json_file, [asdict(row) for row in found])


@app.command
def bench(
    benchmark: Annotated[
        Projection | Layer | Step,
        tyro.conf.arg(name=""),
        tyro.conf.OmitSubcommandPrefixes,
    ],
) -> None:
    """Time the methods beside each other: the maps alone, a whole layer, or a training step."""
    draw_growth = _growth_plot() if isinstance(benchmark, Projection) and benchmark.grow else None
    torch.set_num_threads(benchmark.threads)
    contenders = benchmark.contenders()
    turns = timing.turns(contenders, benchmark.rounds)
    turns_with_progress = _with_progress(turns, timing.num_turns(contenders, benchmark.rounds))
    found = timing.rows(list(turns_with_progress), benchmark.references)
    _table_console().print(tables.benchmark_table(benchmark, found))
    if benchmark.json is not None:
        _write_json(benchmark.json, _record(benchmark, found))
    if isinstance(benchmark, Projection) and draw_growth is not None:
        draw_growth(found, benchmark.plot)
        print(f"wrote {benchmark.plot}")


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback."""
    try:
        app.cli(prog="gomhc", description="Exact doubly stochastic maps for multi-stream residual networks.")
    except KeyboardInterrupt:
        sys.exit("interrupted")


def _record(benchmark: timing.Benchmark, found: list[timing.Row]) -> dict[str, Any]:
    """The rows, and what is needed to measure them again."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(benchmark).items()}
    versions = {"gomhc": __version__, "torch": torch.__version__}
    rows = [asdict(row) for row in found]
    return {"benchmark": type(benchmark).__name__.lower(), "options": options, "versions": versions, "rows": rows}


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n")
    print(f"wrote {file}")


def _growth_plot() -> Callable[[list[timing.Row], Path], None]:
    """What draws; asked for before anything is measured, so that nobody waits in vain."""
    try:
        from gomhc.report.figures.growth import growth_plot
    except ModuleNotFoundError as error:
        sys.exit(f"--grow needs {str(error.name).partition('.')[0]}; install it with: pip install 'gomhc[report]'")
    return growth_plot


def _table_console() -> Console:
    """Standard output; a table that goes into a file or a pipe is not folded to the width of no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _with_progress(items: Iterable[T], total: int, describe: Callable[[T], str] = str) -> Iterator[T]:
    """A bar with the time left on a terminal, at most forty plain lines elsewhere; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        for number, item in enumerate(items, start=1):
            if number * MOST_LINES // total > (number - 1) * MOST_LINES // total:
                print(f"[{number}/{total}] {describe(item)}", file=sys.stderr, flush=True)
            yield item
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        for item in items:
            progress.update(task, advance=1, description=describe(item))
            yield item
