"""What the commands share: progress, consoles for tables, JSON files, and hints on what to install."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from gomhc.lab.files import write_atomically

T = TypeVar("T")
MOST_LINES = 40
"""Maximum number of progress lines where there is no terminal, unless a line is due after `SILENCE`."""
SILENCE = 60.0
"""Seconds without a line after which the next finished item gets one."""
LONGEST_DESCRIPTION = 60
"""Characters of a description in front of the bar."""


@contextmanager
def needs(extra: str, who: str) -> Iterator[None]:
    """Exit with the command that installs `extra` if an import inside fails. Import before computing anything."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == "gomhc":
            raise
        sys.exit(f"{who} needs {package}; install it with: pip install 'gomhc[{extra}]'")


def with_progress(
    items: Iterable[T],
    total: int,
    describe: Callable[[T], str] = str,
    cost: Callable[[T], float] = lambda item: 1.0,
    total_cost: float | None = None,
) -> Iterator[T]:
    """Yield the items and show progress on standard error: a bar on a terminal, a few plain lines elsewhere.

    The time left is estimated from the `cost` of each item, of which `total_cost` is the sum over all items.
    """
    total_cost = float(total) if total_cost is None else total_cost
    console = Console(stderr=True)
    show = _bar(console, total, total_cost) if console.is_terminal else _plain_lines(total, total_cost)
    with show as update:
        for item in items:
            update(describe(item), cost(item))
            yield item


Update = Callable[[str, float], None]
"""Called with the description and the cost of each finished item."""


@contextmanager
def _bar(console: Console, total: int, total_cost: float) -> Iterator[Update]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting", total=total_cost, count=f"0/{total}")
        finished = 0

        def update(description: str, cost: float) -> None:
            nonlocal finished
            finished += 1
            shown = description[:LONGEST_DESCRIPTION]
            progress.update(bar, advance=cost, description=shown, count=f"{finished}/{total}")

        yield update


@contextmanager
def _plain_lines(total: int, total_cost: float) -> Iterator[Update]:
    started = last_line = time.monotonic()
    finished, spent = 0, 0.0

    def update(description: str, cost: float) -> None:
        nonlocal finished, spent, last_line
        finished, spent, now = finished + 1, spent + cost, time.monotonic()
        if is_line_due(finished, total) or now - last_line > SILENCE:
            left, last_line = (now - started) * (total_cost - spent) / max(spent, 1e-9), now
            print(f"[{finished}/{total}] {description}; about {duration(left)} left", file=sys.stderr, flush=True)

    yield update


def duration(seconds: float) -> str:
    """Return `45 s`, `12 min` or `2 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"


def is_line_due(finished: int, total: int) -> bool:
    """Return whether to print a line after this item, so that there are at most `MOST_LINES`, evenly spread."""
    return finished * MOST_LINES // total > (finished - 1) * MOST_LINES // total


def table_console(width: int = 140) -> Console:
    """Return a console on standard output; in a file or a pipe, it has this width."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def print_table(console: Console, table: Table) -> None:
    """Print a table; where it is wider than the console, print its rows one after the other, a line for each cell."""
    if sum(map(_least_width, table.columns)) < console.width:
        console.print(table)
        return
    console.print(table.title or "")
    headings = [column.header for column in table.columns]
    for first, *others in zip(*(column.cells for column in table.columns), strict=True):
        console.print(first, style="bold")
        for heading, cell in zip(headings[1:], others, strict=True):
            console.print(f"  {heading}: {cell}")
    console.print(table.caption or "")


def _least_width(column: Column) -> int:
    """The width of a column with its frame: that of its widest cell, unless its cells may be folded."""
    texts = [str(column.header), *map(str, column.cells)] if column.no_wrap else []
    return max(map(cell_len, texts), default=column.min_width or 0) + 3


def say_at_once(line: str) -> None:
    """Print a line on standard error from a signal handler, which may interrupt `print` in the middle of a line."""
    os.write(2, f"{line}\n".encode())


def write_json(file: Path, value: Any) -> None:
    """Write the value as JSON, completely or not at all, and print the name of the file."""
    write_atomically(file, json.dumps(value, indent=1) + "\n")
    print(f"wrote {file}")
