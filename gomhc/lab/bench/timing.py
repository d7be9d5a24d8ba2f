"""Which of these is faster, and by how much, on a machine that has other things to do?

Everything is timed in one run. In each round every contender has one turn, in an order that is drawn anew, so that what
disturbs the machine for a while disturbs all of them; a contender's time is its median over rounds.
"""

from __future__ import annotations

import gc
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import numpy as np

from gomhc.checks import LARGEST_WHOLE, require_whole
from gomhc.lab.bench.memory import peak_megabytes

MOST_THREADS = 1024
"""Threads that can be asked for; OpenMP ends the process where it cannot start so many."""
TURN_SECONDS = 0.01
"""A contender that is faster than this runs several times in a turn."""


@dataclass(frozen=True, eq=False)
class Contender:
    """Something to be timed."""

    method: str
    """What it is called; only one of its sizes is."""
    sizes: dict[str, int]
    """Letter or word -> how many. Contenders of equal sizes are compared."""
    run: Callable[[], object]
    """Once, forward and backward."""


@dataclass(frozen=True)
class Turn:
    """What one turn of a contender showed."""

    contender: Contender
    round: int
    """Counted from 1; 0 is the warm-up."""
    milliseconds: float
    """Of one call."""
    megabytes: float = 0.0
    """Peak memory of one call, measured in the warm-up."""

    def __str__(self) -> str:
        phase = f"round {self.round}" if self.round else "warm-up"
        return f"{phase}: {self.contender.method}"


@dataclass(frozen=True)
class Row:
    """One contender, measured."""

    method: str
    sizes: dict[str, int]
    milliseconds: float
    """Of one call: the median over rounds."""
    spread: float
    """The interquartile range over rounds, in milliseconds."""
    megabytes: float
    """Peak memory of one call; see `peak_megabytes`."""
    ratios: dict[str, float]
    """Reference -> how many times its median this one's is, for the references that were measured at these sizes."""


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """What is compared, and how carefully."""

    threads: int = 2
    """Threads that torch may use."""
    rounds: int = 20
    """How often each method is timed; the table has medians."""
    json: Path | None = None
    """Also write the rows to this file."""

    title: ClassVar[str]
    """Of the table."""
    references: ClassVar[tuple[str, ...]]
    """Methods that the others are compared to."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                require_whole(name, value, 1, MOST_THREADS if name == "threads" else LARGEST_WHOLE)

    @abstractmethod
    def contenders(self) -> list[Contender]:
        """Everything that is compared, ready to run, in the order of the table."""

    def remarks(self) -> list[str]:
        """What a reader of the table should know besides."""
        return []


def is_installed(module: str) -> bool:
    """Whether this module, of other people, can be measured here."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def turns(contenders: Sequence[Contender], rounds: int) -> Iterator[Turn]:
    """Warm everything up, then time it, round by round; `num_turns` in all."""
    repeats = {}
    for contender in contenders:
        contender.run()
        megabytes = peak_megabytes(contender.run)
        seconds = seconds_per_call(contender.run, 1)
        repeats[contender] = math.ceil(TURN_SECONDS / seconds)
        yield Turn(contender, 0, 1e3 * seconds, megabytes)
    order = random.Random(0)
    for number in range(1, rounds + 1):
        for contender in order.sample(contenders, len(contenders)):
            contender.run()  # not counted: it meets the caches and the heap as another left them
            yield Turn(contender, number, 1e3 * seconds_per_call(contender.run, repeats[contender]))


def num_turns(contenders: Sequence[Contender], rounds: int) -> int:
    """How many turns there will be."""
    return len(contenders) * (rounds + 1)


def seconds_per_call(function: Callable[[], object], repeats: int) -> float:
    """The mean of `repeats` calls, undisturbed by the collection of garbage."""
    gc.disable()
    try:
        start = perf_counter()
        for _ in range(repeats):
            function()
        return (perf_counter() - start) / repeats
    finally:
        gc.enable()


def rows(found: Sequence[Turn], references: Sequence[str]) -> list[Row]:
    """What the turns say: a row for each contender, in the order in which they were warmed up."""
    warm_ups = [turn for turn in found if turn.round == 0]
    times = {
        warm_up.contender: [turn.milliseconds for turn in found if turn.round and turn.contender is warm_up.contender]
        for warm_up in warm_ups
    }
    medians = {contender: float(np.median(times[contender])) for contender in times}

    def row(warm_up: Turn) -> Row:
        contender = warm_up.contender
        first, third = np.percentile(times[contender], (25, 75))
        rivals = {rival.method: median for rival, median in medians.items() if rival.sizes == contender.sizes}
        return Row(
            method=contender.method,
            sizes=contender.sizes,
            milliseconds=medians[contender],
            spread=float(third - first),
            megabytes=warm_up.megabytes,
            ratios={name: medians[contender] / rivals[name] for name in references if name in rivals},
        )

    return [row(warm_up) for warm_up in warm_ups]
