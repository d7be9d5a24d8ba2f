"""The runs of a comparison: each is trained to its end, in its own folder, and leaves a record.

A record belongs to a recipe and the tokens it was trained on. The code that made it is written into it, but is not part
of its identity: records of a study that took days outlive changes of the code, and the page tells where they differ.
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff.registry import NO_MIXING
from gomhc.lab import plugins
from gomhc.lab.expected_errors import is_expected, lacks_memory, words_of
from gomhc.lab.files import Damaged, remove
from gomhc.lab.provenance import machine, repository_state, versions
from gomhc.lab.results.code_version import code_version
from gomhc.lab.results.record import Record, Store, key_of
from gomhc.lab.training import Execution, NotFinite, Recipe, Watcher, checkpoint, history, resume, train
from gomhc.lab.training.distributed import world
from gomhc.lab.training.loop import JITTER_WINDOW
from gomhc.lab.training.recipe import EARLIER
from gomhc.lab.workers import in_processes
from gomhc.statistics.curves import gradient_jitter

EXPERIMENT = "compare"
"""Folder of the records in their store."""
FORMAT = "comparison 1"
"""Stands in the key of a record where other experiments have the version of the code."""
NOT_NUMERICAL = ("corpus", "sample_tokens", "save_every", "keep")
"""Fields of a recipe on which no number of a record depends, once the tokens are known."""
OF_COEFFICIENTS: dict[str, Any] = {
    "start": "mean-stream",
    "total_leak": None,
    "initial_scale": 0.01,
    "coefficient_learning_rate": None,
}
"""Fields of a recipe that mean nothing to a plain network, and what its records have for them."""
OF_STREAMS: dict[str, Any] = {"num_streams": 4, "dynamic": True, "readout": "mean"}
"""Fields that mean nothing to `none` either; `none:as-wide` takes its size from them."""
POINTS = 200
"""Points of a curve that a record keeps."""


@dataclass(frozen=True)
class Task:
    """A run of a method."""

    method: str
    recipe: Recipe
    data: str
    """Fingerprint of the tokens."""

    @property
    def configuration(self) -> dict[str, Any]:
        """All that the numbers depend on, apart from the code."""
        fields = {name: value for name, value in asdict(self.recipe).items() if name not in NOT_NUMERICAL}
        return {**fields, **without_meaning(self.recipe), "data": self.data}

    @property
    def key(self) -> str:
        """The name of its record."""
        return key_of(EXPERIMENT, "Training", self.configuration, FORMAT)

    @property
    def folder_name(self) -> str:
        """The name of its folder."""
        words = "".join(letter if letter.isalnum() else "-" for letter in self.recipe.mixing)
        return f"{words}-seed{self.recipe.seed}-{self.key[:8]}"

    def __str__(self) -> str:
        return f"{self.method}, seed {self.recipe.seed}"


def without_meaning(recipe: Recipe) -> dict[str, Any]:
    """Return the fields that mean nothing to the network of a recipe, and what its records have for them."""
    if recipe.mixing == NO_MIXING:
        return OF_COEFFICIENTS | OF_STREAMS
    return OF_COEFFICIENTS if recipe.parametrization is None else {}


@dataclass(frozen=True)
class Failure:
    """The error that ended a run, as text, because not every error can be sent from a worker."""

    words: str
    """What went wrong, and the way out, on one line."""
    traceback: str
    is_expected: bool
    """Whether the words are enough; without them, it is the traceback that tells."""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an error that is being handled."""
        expected = is_expected(error)
        words = words_of(error) if expected else " ".join(f"{type(error).__name__}: {error}".split())
        if lacks_memory(error):
            words += "; with more memory, or fewer --jobs, the same command continues from here"
        elif isinstance(error, OSError):
            words += "; when the cause is removed, the same command continues from here"
        return cls(words, traceback.format_exc(), expected)


@dataclass(frozen=True)
class Outcome:
    """A task, and its record; without one the run was stopped, or failed."""

    task: Task
    record: Record | None = None
    failure: Failure | None = None


def distinct(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks without repetitions; tasks that differ in what means nothing to their network are the same."""
    first: dict[str, Task] = {}
    for task in tasks:
        first.setdefault(task.key, task)
    return list(first.values())


class Records:
    """The records in a folder, found by what was trained rather than by the name of their file."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.damaged: list[str] = []
        self._records: list[Record] = []
        for path in sorted((folder / EXPERIMENT).glob("[!.]*.json")):
            try:
                record = self.store.load(EXPERIMENT, path.stem)
            except Damaged as error:
                self.damaged.append(str(error))
            else:
                assert record is not None
                self._records.append(record)

    def find(self, task: Task) -> Record | None:
        """Return the record of a task, whatever version of the code made it."""
        wanted, nothing = task.configuration, without_meaning(task.recipe)
        return next(
            (record for record in self._records if {**EARLIER, **record.configuration, **nothing} == wanted), None
        )

    def of(self, tasks: Sequence[Task]) -> list[Record]:
        """Return the records of tasks that were all run."""
        found = [self.find(task) for task in tasks]
        if missing := [str(task) for task, record in zip(tasks, found, strict=True) if record is None]:
            raise LookupError(f"runs without a record: {'; '.join(missing)}")
        return [record for record in found if record is not None]

    def add(self, record: Record) -> None:
        """Remember a record that a worker has written."""
        self._records.append(record)


def perform(
    tasks: Sequence[Task], store: Store, folder: Path, execution: Execution, jobs: int, stop: Path
) -> Iterator[Outcome]:
    """Train every task in `jobs` processes, each with one thread, and yield the outcomes as they come.

    Where torchrun started several processes, they train one task after the other together. A file at `stop` ends all
    runs after their current step, with a checkpoint.
    """
    commit = repository_state()
    if jobs > 1:
        arguments = ((task, store, folder, execution, stop, commit) for task in tasks)
        yield from in_processes(train_one, arguments, min(jobs, len(tasks)), in_order=False)
        return
    for task in tasks:
        yield train_one(task, store, folder, execution, stop, commit)


class StopAtFile(Watcher):
    """Stops a run when a file appears."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def wants_stop(self) -> bool:
        return self.file.exists()


def train_one(task: Task, store: Store, folder: Path, execution: Execution, stop: Path, commit: str) -> Outcome:
    """Train one task to its end, from its newest checkpoint if there is one, and write its record."""
    plugins.load()  # this may be a process of its own
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    if execution.compile:
        torch.compiler.reset()  # which compiles no more than eight models in a process
    started = time.perf_counter()
    try:
        with world(execution.device) as processes:
            if any(processes.sum(float(stop.exists()))):  # together, or one would train and wait for the others
                return Outcome(task)
            metrics = _trained(task.recipe, folder / task.folder_name, execution, stop)
            if metrics is None:
                return Outcome(task)
            record = _record(task, metrics, commit, time.perf_counter() - started)
            processes.from_main(lambda: str(store.save(record)))  # the others wait until it is written
        return Outcome(task, store.load(EXPERIMENT, task.key))  # as a later command will read it
    except Exception as error:
        return Outcome(task, failure=Failure.of(error))
    finally:
        torch.set_num_threads(before)


def set_aside_damaged(run: Path) -> str | None:
    """Rename the folder of a run if its checkpoints are damaged; return what was wrong, None if nothing was."""
    if not checkpoint.steps(run):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the newest of several checkpoints; resuming warns of it again
            checkpoint.load(run)
    except Damaged as error:
        aside = run.with_name(f"damaged-{run.name}")
        remove(aside)
        run.rename(aside)
        return f"{error}; {run} is now {aside}"
    return None


def _trained(recipe: Recipe, folder: Path, execution: Execution, stop: Path) -> dict[str, Any] | None:
    """Train, and return what a record keeps; None if the run was stopped."""
    recipe = replace(recipe, sample_tokens=0, keep=1)
    watcher = StopAtFile(stop)
    try:
        if checkpoint.steps(folder):
            done = resume(folder, execution, watcher, corpus=recipe.corpus)
        else:
            done = train(recipe, folder, execution, watcher)
    except NotFinite as error:
        return {"diverged": str(error).partition(". The last")[0]}
    return summary(list(history.read(folder)), recipe) if done == recipe.steps else None


def summary(metrics: Sequence[Mapping[str, Any]], recipe: Recipe) -> dict[str, Any]:
    """Return what a record keeps of the metrics of a run."""
    steps = [record for record in metrics if "gradient_norm" in record]
    evaluations = [record for record in metrics if "validation_loss" in record]
    losses = [record["loss"] for record in steps]
    norms = [record["gradient_norm"] for record in steps]
    stride = max(1, recipe.steps // POINTS)
    settled = norms[recipe.warmup_steps :]
    return {
        "validation_steps": [record["step"] for record in evaluations],
        "validation_losses": [record["validation_loss"] for record in evaluations],
        "steps": list(range(0, len(losses), stride)),
        "losses": _means(losses, stride),
        "gradient_norms": _means(norms, stride),
        "last_loss": float(np.mean(losses[-max(1, recipe.steps // 10) :])),
        "jitter": float(np.mean(gradient_jitter(settled))) if len(settled) >= JITTER_WINDOW else None,
        "largest_norm": max(norms),
        "streams": {name: value for name, value in evaluations[-1].items() if "/" in name},
    }


def _means(values: Sequence[float], stride: int) -> list[float]:
    return [round(float(np.mean(values[start : start + stride])), 5) for start in range(0, len(values), stride)]


def _record(task: Task, metrics: dict[str, Any], commit: str, seconds: float) -> Record:
    return Record(
        experiment=EXPERIMENT,
        run="Training",
        configuration=task.configuration,
        full_size=False,
        key=task.key,
        code_version=FORMAT,
        commit=commit,
        versions={**versions(), "sources": code_version("gomhc.lab.training.loop")},
        device=f"{machine()}, {os.environ.get('WORLD_SIZE', 1)} x 1 thread",
        wall_time=seconds,
        metrics=metrics,
    )
