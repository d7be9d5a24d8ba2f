"""Progress of the runs of a comparison: a bar with the time left, or plain lines where there is no terminal.

Runs train in other processes; how far they are is read from the end of their metrics.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from gomhc.lab.cli.terminal import SILENCE, duration
from gomhc.lab.comparison.runs import Outcome, Task
from gomhc.lab.training.history import FILE

REFRESH = 2.0
"""Seconds between two looks at the runs, on a terminal."""
LONGEST_RECORD = 2**14
"""Bytes at the end of the metrics in which the last record is looked for."""


class ComparisonProgress:
    """Shows on standard error which share of the work is done, by the cost of each task in seconds."""

    def __init__(self, to_do: Sequence[Task], runs: Path, cost: Callable[[Task], float]) -> None:
        self.to_do, self.runs, self.cost = to_do, runs, cost
        self.finished: dict[Task, str] = {}
        self.total = sum(map(cost, to_do))
        self.begin, self.before = time.monotonic(), self.done()
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)
        self.ended = threading.Event()

    def watch(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """Yield the outcomes, and show progress meanwhile."""
        task = self.bar.add_task(self.count, total=self.total, left="")
        watcher = threading.Thread(target=self._watch, args=(task,), daemon=True)
        with self.bar:
            watcher.start()
            try:
                for outcome in outcomes:
                    self.finished[outcome.task] = str(outcome.task)
                    if outcome.record is not None and not self.console.is_terminal:
                        self._say(f"{outcome.task}")
                    yield outcome
            finally:
                self.ended.set()
                watcher.join()

    @property
    def count(self) -> str:
        """Return `[3/8]`."""
        return f"[{len(self.finished)}/{len(self.to_do)}]"

    def done(self) -> float:
        """Return the seconds of work that are done, runs in progress included."""
        return sum(self.cost(task) * self._share(task) for task in self.to_do)

    def left(self) -> str:
        """Return the time left at the speed so far."""
        done = self.done()
        speed = (done - self.before) / max(time.monotonic() - self.begin, 1e-9)
        if done <= self.before:
            return "time left not known yet"
        return f"about {duration((self.total - done) / speed)} left"

    def _share(self, task: Task) -> float:
        if task in self.finished:
            return 1.0
        return min(1.0, steps_done(self.runs / task.folder_name) / task.recipe.steps)

    def _watch(self, task: object) -> None:
        while not self.ended.wait(REFRESH if self.console.is_terminal else SILENCE):
            if self.console.is_terminal:
                self.bar.update(task, description=self.count, completed=self.done(), left=self.left())  # type: ignore[arg-type]
            else:
                self._say(f"{self.done() / self.total:.0%} of the work done")

    def _say(self, line: str) -> None:
        print(f"{self.count} {line}; {self.left()}", file=sys.stderr, flush=True)


def steps_done(run: Path) -> int:
    """Return the number of steps in the metrics of a run; 0 if there are none yet."""
    with suppress(OSError):
        with (run / FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_RECORD))
            lines = file.read().splitlines()
        for line in reversed(lines):
            with suppress(ValueError, TypeError, KeyError):
                return int(json.loads(line)["step"]) + 1
    return 0
