"""Runs in processes: each is done once, independently of the others, and kept as soon as it is done.

A worker writes its own record, so that whoever is stopped, in whatever way, loses no more than the runs in hand.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from gomhc.lab import plugins
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.files import Damaged
from gomhc.lab.provenance import machine, repository_state, versions
from gomhc.lab.results.code_version import code_version
from gomhc.lab.results.record import Record, Store, key_of
from gomhc.lab.workers import in_processes


@dataclass(frozen=True)
class ScheduledRun:
    """A run of an experiment, and the key of its record."""

    experiment: str
    run: Run
    code_version: str

    @property
    def kind(self) -> str:
        """The name of the run's class."""
        return type(self.run).__name__

    @property
    def key(self) -> str:
        """Under which its record is kept."""
        return key_of(self.experiment, self.kind, self.run.configuration, self.code_version)

    def __str__(self) -> str:
        values = ((field.name, getattr(self.run, field.name), field.default) for field in fields(self.run))
        told = ", ".join(f"{name} {value}" for name, value, default in values if value != default)
        return f"{self.experiment}: {told or self.kind}"


@dataclass(frozen=True)
class Done:
    """A task and its record, or why it has none."""

    task: ScheduledRun
    record: Record | None
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """Runs that have records, runs that are still to do, and records that are damaged and will be made again."""

    kept: dict[ScheduledRun, Record]
    to_do: list[ScheduledRun]
    damaged: list[str]


def tasks_of(experiments: Sequence[Experiment], scale: Scale) -> list[ScheduledRun]:
    """Every run of these experiments at this scale, in their order."""
    return [
        ScheduledRun(experiment.name, run, code_version(type(experiment).__module__))
        for experiment in experiments
        for run in experiment.runs(scale)
    ]


def plan(tasks: Sequence[ScheduledRun], store: Store) -> Plan:
    """Look for each task's record; the costly tasks come first in `to_do`, those that must be alone last."""
    kept: dict[ScheduledRun, Record] = {}
    to_do: list[ScheduledRun] = []
    damaged: list[str] = []
    for task in dict.fromkeys(tasks):
        try:
            record = store.load(task.experiment, task.key)
        except Damaged as error:
            damaged.append(str(error))
            record = None
        if record is None:
            to_do.append(task)
        else:
            kept[task] = record
    return Plan(kept, sorted(to_do, key=lambda task: (task.run.alone, -task.run.cost)), damaged)


def complete(experiments: Sequence[Experiment], scale: Scale, store: Store) -> dict[str, list[Record]]:
    """Name -> records of each experiment all of whose runs at this scale have been done."""
    finished = {}
    for experiment in experiments:
        planned = plan(tasks_of([experiment], scale), store)
        if planned.kept and not planned.to_do:
            finished[experiment.name] = list(planned.kept.values())
    return finished


def perform(to_do: Sequence[ScheduledRun], store: Store, jobs: int) -> Iterator[Done]:
    """Do each task and keep its record; those that share the machine in `jobs` processes, then the others one by one.

    What raises an error is told and does not stop the others. Interrupted, it ends its processes.
    """
    together = [task for task in to_do if not task.run.alone]
    alone = [task for task in to_do if task.run.alone]
    threads = max(1, (os.cpu_count() or 1) // jobs)
    commit = repository_state()  # asked for once: the files may change while this runs
    if together and jobs > 1:
        arguments = ((task, store, threads, commit) for task in together)
        yield from in_processes(_do, arguments, min(jobs, len(together)), in_order=False)
    elif together:
        yield from (_do(task, store, threads, commit) for task in together)
    yield from (_do(task, store, os.cpu_count() or 1, commit) for task in alone)


def _do(task: ScheduledRun, store: Store, threads: int, commit: str) -> Done:
    plugins.load()  # this may be a process of its own
    before, threads = torch.get_num_threads(), task.run.num_threads or threads
    torch.set_num_threads(threads)
    started = time.perf_counter()
    try:
        metrics = task.run.execute()
    except Exception:
        return Done(task, None, traceback.format_exc())
    finally:
        torch.set_num_threads(before)
    record = Record(
        experiment=task.experiment,
        run=task.kind,
        configuration=task.run.configuration,
        full_size=task.run.full_size,
        key=task.key,
        code_version=task.code_version,
        commit=commit,
        versions=versions(),
        device=f"{machine()}, {threads} {'thread' if threads == 1 else 'threads'}",
        wall_time=time.perf_counter() - started,
        metrics=metrics,
    )
    store.save(record)
    saved = store.load(record.experiment, record.key)  # what a later report will see, to the letter
    return Done(task, saved)
