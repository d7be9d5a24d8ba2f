"""`gomhc reproduce`: measurements of the paper's claims, and a page with the verdicts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gomhc.checks import require_choice, require_whole
from gomhc.lab.cli.terminal import needs, with_progress
from gomhc.lab.experiments import schedule
from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.experiments.experiment import Experiment, Scale
from gomhc.lab.experiments.schedule import Done, ScheduledRun
from gomhc.lab.experiments.verdicts import judge
from gomhc.lab.files import remove_unfinished, write_atomically
from gomhc.lab.judge.judgement import FILE, Judgement
from gomhc.lab.lock import lock
from gomhc.lab.results.record import Record, Store

MOST_JOBS = 1024
"""Maximum number of processes."""


def reproduce(
    scale: Scale = "quick",
    out: Path = Path("reproduction"),
    only: tuple[str, ...] | None = None,
    list_experiments: Annotated[bool, tyro.conf.arg(name="list"), tyro.conf.FlagCreatePairsOff] = False,
    jobs: int = os.cpu_count() or 1,
    format: Literal["html", "md"] = "html",
) -> None:
    """Measure the paper's claims, and write a page with a verdict on each of them.

    Finished runs are stored in OUT/records and not repeated unless the code that they depend on has changed. An
    interrupted command continues where it stopped. The page also shows the tables of `gomhc judge --out OUT`.

    Args:
        scale: quick (minutes), laptop (the paper's sizes except the language model; about an hour) or paper (on a GPU).
        out: Folder for the page, claims.json and the records; judge.json is read if it exists.
        only: Run only these experiments; the page also shows records from earlier commands.
        list_experiments: Print the experiments and the number of runs of each, and exit.
        jobs: Number of parallel runs.
        format: Format of the page.
    """
    experiments = _chosen(only)
    if list_experiments:
        for experiment in experiments:
            print(f"{experiment.name:16} {len(experiment.runs(scale)):4} runs   {experiment.title}")
        return
    require_whole("jobs", jobs, 1, MOST_JOBS)
    with needs("report", "gomhc reproduce"):
        import joblib  # noqa: F401
    judgement = Judgement.load(out / FILE) if (out / FILE).exists() else None
    out.mkdir(parents=True, exist_ok=True)
    with lock(out / ".lock", str(out)):
        _reproduce(experiments, scale, out, jobs, format, judgement)


def _reproduce(
    experiments: Sequence[Experiment],
    scale: Scale,
    out: Path,
    jobs: int,
    format: Literal["html", "md"],
    judgement: Judgement | None,
) -> None:
    """Run everything that has no record yet, and write the page."""
    page_needs = _missing_for_a_page()
    if page_needs is not None:
        print(
            f"no page will be written, because {page_needs} is missing; install it with: pip install 'gomhc[report]'",
            file=sys.stderr,
        )
    for name in ("claims.json", "report.html", "report.md"):
        remove_unfinished(out, name)
    store = Store(out / "records")
    store.remove_unfinished()
    planned = schedule.plan(schedule.tasks_of(experiments, scale), store)
    for problem in planned.damaged:
        print(f"damaged record: {problem}; running it again", file=sys.stderr)
    print(f"{len(planned.kept)} runs kept, {len(planned.to_do)} to do", file=sys.stderr)
    errors = _perform(schedule.perform(planned.to_do, store, jobs), planned.to_do)
    records = schedule.complete(all_experiments(), scale, store)
    claims = [item.as_json() for item in judge(all_experiments(), records)]
    write_atomically(out / "claims.json", json.dumps(claims, indent=1, ensure_ascii=False) + "\n")
    if page_needs is not None:
        print(out / "claims.json")
    else:
        print(_write_page(out / f"report.{format}", records, scale, errors, judgement, jobs))
    if errors:
        sys.exit(f"{len(errors)} runs failed; {'the page shows their errors' if page_needs is None else errors[0]}")


def _missing_for_a_page() -> str | None:
    """The package that is not installed, if any; verdicts need none of them."""
    try:
        import scipy  # noqa: F401

        import gomhc.lab.report.reproduction  # noqa: F401
    except ModuleNotFoundError as error:
        return error.name
    return None


def _write_page(
    path: Path,
    records: Mapping[str, Sequence[Record]],
    scale: Scale,
    errors: Sequence[str],
    judgement: Judgement | None,
    jobs: int,
) -> Path:
    """Draw the page, unless the one that is there was made from the same records by the same code."""
    from gomhc.lab.report import reproduction

    made_from = reproduction.made_from(records, scale, judgement)
    if errors or not _ends_with(path, made_from):
        print("drawing the page", file=sys.stderr)
        page = reproduction.report(all_experiments(), records, scale, errors, judgement)
        text = page.html(jobs) if path.suffix == ".html" else page.markdown()
        write_atomically(path, text if errors else f"{text.rstrip()}\n{made_from}")
    return path


def _ends_with(path: Path, remark: str) -> bool:
    return path.exists() and path.read_bytes().endswith(remark.encode())


def _chosen(only: Sequence[str] | None) -> Sequence[Experiment]:
    """Return the experiments of these names that have runs, or all of them if there are none."""
    with needs("report", "gomhc reproduce"):
        experiments = all_experiments()
    runnable = [experiment for experiment in experiments if experiment.runs("quick")]
    if only is None:
        return runnable
    names = [experiment.name for experiment in runnable]
    if not only:
        raise ValueError(f"only must name at least one experiment, got none; choose from {', '.join(names)}")
    for name in only:
        require_choice("only", name, names)
    return [experiment for experiment in runnable if experiment.name in only]


def _perform(done: Iterator[Done], to_do: Sequence[ScheduledRun]) -> list[str]:
    """Wait for the runs, with progress, and return the errors of those that failed."""
    errors, finished = [], 0
    try:
        for outcome in _with_progress(done, to_do):
            finished += 1
            if outcome.record is None:
                errors.append(f"{outcome.task}\n{outcome.error}")
                print(f"failed: {outcome.task}: {outcome.error.strip().splitlines()[-1]}", file=sys.stderr)
    except KeyboardInterrupt:
        left = len(to_do) - finished
        sys.exit(f"interrupted: {finished} runs are kept and {left} are left; the same command continues from here")
    except BrokenExecutor as error:
        reason = str(error).splitlines()[0]
        sys.exit(
            f"a worker process died ({reason}), perhaps because memory ran out or the sources changed; {finished} runs "
            f"are kept, and the same command, perhaps with fewer --jobs, continues from here"
        )
    return errors


def _with_progress(done: Iterator[Done], to_do: Sequence[ScheduledRun]) -> Iterator[Done]:
    def describe(outcome: Done) -> str:
        return str(outcome.task)

    def cost(outcome: Done) -> float:
        return outcome.task.run.cost

    return with_progress(done, len(to_do), describe, cost, sum(task.run.cost for task in to_do))
