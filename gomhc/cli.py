"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

try:
    import tyro
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

import torch

from gomhc.experiments import exactness
from gomhc.version import __version__

app = tyro.extras.SubcommandApp()


@app.command
def version() -> None:
    """Print the version of gomhc and of torch."""
    print(f"gomhc {__version__}, torch {torch.__version__}")


@app.command(name="exactness")
def exactness_table(
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None, seconds: float = 0.2
) -> None:
    """Print how exact each parametrization is, and what it costs.

    Args:
        json_file: Also write the rows to this file.
        seconds: The least time that each timing takes; more is steadier.
    """
    found = list(_with_progress(exactness.rows(seconds), exactness.num_rows()))
    _table_console().print(_exactness_table(found))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")
        print(f"wrote {json_file}")


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback."""
    try:
        app.cli(prog="gomhc", description="Exact doubly stochastic maps for multi-stream residual networks.")
    except KeyboardInterrupt:
        sys.exit("interrupted")


def _exactness_table(found: list[exactness.Row]) -> Table:
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


def _table_console() -> Console:
    """Standard output; a table that goes into a file or a pipe is not folded to the width of no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _with_progress(rows: Iterator[exactness.Row], total: int) -> Iterator[exactness.Row]:
    """A bar with the time left on a terminal, a plain line a row elsewhere; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        for number, row in enumerate(rows, start=1):
            print(f"[{number}/{total}] {row.method} d={row.num_streams}", file=sys.stderr, flush=True)
            yield row
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        for row in rows:
            progress.update(task, advance=1, description=f"{row.method} d={row.num_streams}")
            yield row
