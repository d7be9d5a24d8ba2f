"""Timing of several contenders against each other on a machine that is not idle.

Everything is timed in one run. In each round every contender takes one turn, in a new random order, so that other work
on the machine slows all of them alike. The time of a contender is its median over rounds.
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
"""Maximum number of threads; OpenMP aborts the process if it cannot start that many."""
TURN_SECONDS = 0.01
"""Minimum duration of a turn; faster contenders run several times in it."""


@dataclass(frozen=True, eq=False)
class Contender:
    """A function to time."""

    method: str
    """Name of the method; unique among contenders of equal sizes."""
    sizes: dict[str, int]
    """Name of a size -> its value. Only contenders of equal sizes are compared."""
    run: Callable[[], object]
    """Runs forward and backward once."""


@dataclass(frozen=True)
class Turn:
    """The measurement of one turn of a contender."""

    contender: Contender
    round: int
    """Number of the round, from 1; 0 is the warm-up."""
    milliseconds: float
    """Time of one call."""
    megabytes: float = 0.0
    """Peak memory of one call, measured in the warm-up."""

    def __str__(self) -> str:
        phase = f"round {self.round}" if self.round else "warm-up"
        return f"{phase}: {self.contender.method}"


@dataclass(frozen=True)
class Timing:
    """Time and memory of one contender."""

    method: str
    sizes: dict[str, int]
    milliseconds: float
    """Time of one call: the median over rounds."""
    spread: float
    """The interquartile range over rounds, in milliseconds."""
    megabytes: float
    """Peak memory of one call; see `peak_megabytes`."""
    ratios: dict[str, float]
    """Reference -> this median as a multiple of the reference's, for references measured at these sizes."""


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """Base class of benchmarks: the contenders, and how often they are timed."""

    threads: int = 2
    """Number of threads that torch uses."""
    rounds: int = 20
    """Number of times that each method is timed; the table shows medians."""
    json: Path | None = None
    """Also write the table to this file, as JSON."""

    title: ClassVar[str]
    """Title of the table."""
    references: ClassVar[tuple[str, ...]]
    """Methods that the others are compared with."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                require_whole(name, value, 1, MOST_THREADS if name == "threads" else LARGEST_WHOLE)

    @abstractmethod
    def contenders(self) -> list[Contender]:
        """Return everything that is compared, ready to run, in the order of the table."""

    def remarks(self) -> list[str]:
        """Return further remarks for the caption of the table."""
        return []


def is_installed(module: str) -> bool:
    """Return whether this third-party module can be imported."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def turns(contenders: Sequence[Contender], rounds: int) -> Iterator[Turn]:
    """Warm every contender up, then time all of them in each round; yields `num_turns` turns."""
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
            contender.run()  # not counted: caches and heap are as another contender left them
            yield Turn(contender, number, 1e3 * seconds_per_call(contender.run, repeats[contender]))


def num_turns(contenders: Sequence[Contender], rounds: int) -> int:
    """Return how many turns `turns` yields."""
    return len(contenders) * (rounds + 1)


def seconds_per_call(function: Callable[[], object], repeats: int) -> float:
    """Return the mean time of `repeats` calls, with garbage collection off."""
    gc.disable()
    try:
        start = perf_counter()
        for _ in range(repeats):
            function()
        return (perf_counter() - start) / repeats
    finally:
        gc.enable()


def timings(turns: Sequence[Turn], references: Sequence[str]) -> list[Timing]:
    """Summarize the turns: one timing per contender, in the order of the warm-up."""
    warm_ups = [turn for turn in turns if turn.round == 0]
    times = {
        warm_up.contender: [turn.milliseconds for turn in turns if turn.round and turn.contender is warm_up.contender]
        for warm_up in warm_ups
    }
    medians = {contender: float(np.median(times[contender])) for contender in times}

    def timing(warm_up: Turn) -> Timing:
        contender = warm_up.contender
        first, third = np.percentile(times[contender], (25, 75))
        rivals = {rival.method: median for rival, median in medians.items() if rival.sizes == contender.sizes}
        return Timing(
            method=contender.method,
            sizes=contender.sizes,
            milliseconds=medians[contender],
            spread=float(third - first),
            megabytes=warm_up.megabytes,
            ratios={name: medians[contender] / rivals[name] for name in references if name in rivals},
        )

    return [timing(warm_up) for warm_up in warm_ups]
