"""How do commands speak to who runs them? Progress, tables, files, and what is to be installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gomhc.lab.files import write_atomically

T = TypeVar("T")
MOST_LINES = 40
"""Of progress, where there is no terminal."""


@contextmanager
def needs(extra: str, who: str) -> Iterator[None]:
    """Around imports, before anything is computed, so that nobody waits in vain: says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        sys.exit(f"{who} needs {package}; install it with: pip install 'gomhc[{extra}]'")


def with_progress(items: Iterable[T], total: int, describe: Callable[[T], str] = str) -> Iterator[T]:
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


def table_console() -> Console:
    """Standard output; a table that goes into a file or a pipe is not folded to the width of no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def write_json(file: Path, value: Any) -> None:
    """Write it whole or not at all, and say so."""
    write_atomically(file, json.dumps(value, indent=1) + "\n")
    print(f"wrote {file}")
