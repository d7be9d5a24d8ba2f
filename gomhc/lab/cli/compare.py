"""`gomhc compare`: train several methods on the same batches, from the same weights where shapes agree."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import joblib  # noqa: F401  so that the command says at once what is missing
import scipy  # noqa: F401
import torch
import tyro

from gomhc.birkhoff.registry import NO_MIXING
from gomhc.checks import require_whole
from gomhc.lab.bench.timing import Turn
from gomhc.lab.cli.comparison_progress import ComparisonProgress
from gomhc.lab.cli.comparison_table import comparison_table
from gomhc.lab.cli.mistakes import is_debugged
from gomhc.lab.cli.terminal import duration, print_table, say_at_once, table_console, with_progress, write_json
from gomhc.lab.comparison import costs as step_costs
from gomhc.lab.comparison.costs import StepCost, StepSetting
from gomhc.lab.comparison.methods import recipes_of, with_wide_controls
from gomhc.lab.comparison.plan import Tried, Tuning, at_equal_seconds, comparison_tasks
from gomhc.lab.comparison.result import Result, TrainingText, result
from gomhc.lab.comparison.runs import EXPERIMENT, Outcome, Records, Task, distinct, perform, set_aside_damaged
from gomhc.lab.comparison.words import findings
from gomhc.lab.data import corpora
from gomhc.lab.data.tokens import prepare, require_windows
from gomhc.lab.files import remove_unfinished, require_writable, write_atomically
from gomhc.lab.lock import lock
from gomhc.lab.recipes import DEFAULT, RECIPES
from gomhc.lab.report.comparison_page import comparison_page
from gomhc.lab.training import Execution, Recipe
from gomhc.lab.training.distributed import World, world
from gomhc.lab.training.loop import require_memory
from gomhc.lab.training.signals import stop_on_signals

MOST_JOBS = 1024
LONGEST_COMPARISON = 1000
"""Maximum number of seeds."""
INTERRUPTED = "interrupted: every run has saved a checkpoint; the same command continues from here"
BASE = replace(RECIPES[DEFAULT](), mixing=NO_MIXING)
"""What all methods share; each has its own mixing."""


class Stopped(Exception):
    """The command was asked to stop; every run has saved a checkpoint."""


def compare(
    methods: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="METHOD...", help_behavior_hint="(required)")
    ],
    recipe: Annotated[Recipe, tyro.conf.arg(name="")] = BASE,
    execution: Annotated[Execution, tyro.conf.arg(name="")] = Execution(),  # noqa: B008
    seeds: int = 5,
    out: Path = Path("comparison"),
    records: Path | None = None,
    jobs: int | None = None,
    tune: tuple[str, ...] = (),
    tuning_seeds: int = 1,
    tuning_steps: int | None = None,
    equal_seconds: bool = False,
    plan: bool = False,
) -> None:
    """Train several methods on the same batches, from the same weights where shapes agree, and compare their losses.

    A METHOD is a mixing as `gomhc train --mixing` takes it, with options of the recipe after an @, as in
    go@start=mean-stream,readout=learned. none is the plain network, and none:as-wide=go is the plain network
    with as many parameters as go. The first method is the reference. METHODs come before all options; --mixing,
    --sample-tokens and --keep do not apply here.

    The command writes compare.json and compare.html to OUT. A finished run is kept as a record and not repeated; after
    an interruption the same command continues, bit for bit. With torchrun, runs go one after the other, each on all
    processes.

    Args:
        methods: Two methods or more.
        recipe: What all methods share.
        execution: How the runs are computed.
        seeds: Number of seeds, from --seed on; at least two.
        out: Folder for the result and for runs in progress.
        records: Folder of the records of finished runs; by default OUT/records. Comparisons can share it.
        jobs: Number of runs at a time, with one thread each; by default one for each core, or one with CUDA.
        tune: Try values of an option first, with separate seeds, and compare each method at its best value:
            learning_rate=1e-3,2e-3,4e-3. Several options are tuned one after the other. Options of streams
            and coefficients, such as coefficient_learning_rate, are not tuned for plain networks.
        tuning_seeds: Number of seeds for tuning.
        tuning_steps: Number of steps of a run for tuning; by default --steps.
        equal_seconds: Also train each method for the time that the first method takes; without it, the difference at
            equal seconds comes from learning curves that are cut short.
        plan: Time a few steps of each method, say how long the comparison takes, and exit.
    """
    recipes, tunings, jobs = _checked(methods, recipe, execution, seeds, jobs, tune, tuning_seeds, tuning_steps)
    kept = records or out / "records"
    _require_folders(out / "runs", kept / EXPERIMENT)
    text = corpora.find(recipe.corpus)
    data = prepare(text, recipe.tokenizer)
    require_windows(data, recipe.context_length)
    corpus = TrainingText(name=Path(recipe.corpus).name, fingerprint=text.fingerprint, tokens=data.fingerprint)
    for file in (out / "compare.json", out / "compare.html", kept / "any"):
        require_writable(file)
    with _locked(out), world(execution.device) as processes:
        setting = StepSetting(data.tokenizer.vocab_size, processes.device.type, execution.compile)
        for method, own in recipes.items():
            _require_memory(method, own, data.tokenizer.vocab_size, processes)
        held_out_tokens = len(data.validation)
        comparison = _Comparison(execution, out, Records(kept), jobs, corpus, held_out_tokens, setting, processes)
        comparison.measure("costs.json", recipes)
        numbers = range(recipe.seed, recipe.seed + seeds)
        if plan:
            comparison.tell_plan(recipes, numbers, tunings, equal_seconds)
            return
        try:
            compared = comparison.compare(recipes, numbers, tunings, equal_seconds)
        except Stopped:
            if "RANK" not in os.environ:
                sys.exit(INTERRUPTED)
            _say(INTERRUPTED)  # with an error here, torchrun would report that a process failed
            return
        if processes.is_main:
            _show(compared, out)


def _show(compared: Result, out: Path) -> None:
    write_json(out / "compare.json", compared)
    write_atomically(out / "compare.html", comparison_page(compared).html())
    print(f"wrote {out / 'compare.html'}")
    console = table_console(width=180)
    print_table(console, comparison_table(compared))
    for sentence in findings(compared):
        console.print(f"• {sentence}")


class _Comparison:
    """Where runs are kept, how many go at a time, and what a step of each method costs."""

    def __init__(
        self,
        execution: Execution,
        out: Path,
        records: Records,
        jobs: int,
        corpus: TrainingText,
        held_out_tokens: int,
        setting: StepSetting,
        processes: World,
    ) -> None:
        self.execution, self.out, self.records, self.jobs = execution, out, records, jobs
        self.corpus, self.held_out_tokens = corpus, held_out_tokens
        self.setting, self.processes = setting, processes
        for problem in records.damaged:
            _say(f"ignoring a damaged record: {problem}; a run without a record is run again")

    def measure(self, name: str, recipes: Mapping[str, Recipe]) -> None:
        """Go by the costs in a file, which the main process measures first if they are not there."""
        file, setting = self.out / name, self.setting

        def measured() -> str:
            if step_costs.load(file, recipes, setting) is None:
                step_costs.save(file, step_costs.measure(recipes, setting, _watch_turns), recipes, setting)
            return str(file)

        costs = step_costs.load(Path(self.processes.from_main(measured)), recipes, setting)
        assert costs is not None
        self.costs: dict[str, StepCost] = costs

    def compare(
        self, recipes: Mapping[str, Recipe], seeds: Sequence[int], tunings: Sequence[Tuning], equal_seconds: bool
    ) -> Result:
        """Tune, run everything that has no record yet, and return the result."""
        data, recipes = self.corpus.tokens, dict(recipes)
        tuned: dict[str, list[Tried]] = {method: [] for method in recipes}
        for tuning in tunings:
            self.run(tuning.tasks(recipes, data))
            for method, recipe in recipes.items():
                if tuning.applies(recipe):
                    tried = tuning.tried(method, recipe, data, self.records)
                    tuned[method].append(tried)
                    recipes[method] = tuning.applied(recipe, tried.best)
            recipes = with_wide_controls(recipes)
        if any(tuning.option in step_costs.SIZES for tuning in tunings):
            self.measure("costs-tuned.json", recipes)
        self.run(comparison_tasks(recipes, seeds, data))
        timed = at_equal_seconds(recipes, self.costs) if equal_seconds else None
        if timed is not None:
            self.run(comparison_tasks(timed, seeds, data))
        return result(recipes, seeds, self.corpus, self.records, self.costs, tuned, timed)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run the tasks that have no record yet."""
        to_do, num_kept = self._to_do(tasks)
        _say(f"{num_kept} runs kept, {len(to_do)} to do")
        if not to_do:
            return
        stop, failures = self.out / ".stop", list[Outcome]()
        if _is_main():
            stop.unlink(missing_ok=True)
        runs = self.out / "runs"
        self.processes.from_main(lambda: self._set_aside_damaged(to_do, runs))
        with stop_on_signals(lambda: _stop_at(stop)):
            done = perform(to_do, self.records.store, runs, self.execution, self.jobs, stop)
            if _is_main():
                done = ComparisonProgress(to_do, runs, self.seconds).watch(done)
            stopped = self._collect(done, stop, failures)
        if not failures:  # with one, the others may not come here
            stopped = any(self.processes.sum(float(stopped)))  # all have looked at the file when it is deleted
        if _is_main():
            stop.unlink(missing_ok=True)
        if failures:
            sys.exit(_failed(failures))
        if stopped:
            raise Stopped

    def _set_aside_damaged(self, to_do: Sequence[Task], runs: Path) -> str:
        """Set aside the runs that cannot be continued, so that they start again; return how many there were."""
        damaged = 0
        for task in to_do:
            if (problem := set_aside_damaged(runs / task.folder_name)) is not None:
                damaged += 1
                _say(f"damaged run: {problem}; starting {task} from step 0")
        return str(damaged)

    def _collect(self, done: Iterator[Outcome], stop: Path, failures: list[Outcome]) -> bool:
        """Remember the records; return whether a run was stopped."""
        stopped = False
        try:
            for outcome in done:
                if outcome.record is not None:
                    self.records.add(outcome.record)
                elif outcome.failure is not None:
                    failures.append(outcome)
                    if self.processes.size > 1:  # the others may wait for this one; torchrun ends them
                        break
                else:
                    stopped = True
                    if self.jobs == 1:
                        break
        except BrokenExecutor as error:
            if not stop.exists():  # a signal to the whole group ends workers that are only starting
                sys.exit(
                    f"a worker process died ({str(error).splitlines()[0]}), perhaps because memory ran out; finished "
                    "runs are kept, and the same command, perhaps with fewer --jobs, continues from here"
                )
        return stopped or stop.exists()

    def tell_plan(
        self, recipes: Mapping[str, Recipe], seeds: Sequence[int], tunings: Sequence[Tuning], equal_seconds: bool
    ) -> None:
        """Print how many runs there are, and how long they take."""
        if not _is_main():
            return
        tasks = [task for tuning in tunings for task in tuning.tasks(recipes, self.corpus.tokens)]
        tasks += comparison_tasks(recipes, seeds, self.corpus.tokens)
        if equal_seconds:
            tasks += comparison_tasks(at_equal_seconds(recipes, self.costs), seeds, self.corpus.tokens)
        to_do, num_kept = self._to_do(tasks)
        for method, recipe in recipes.items():
            cost = self.costs[method]
            run = duration(step_costs.seconds(recipe, cost, self.held_out_tokens))
            print(
                f"{method}: {cost.num_parameters:,} parameters, {cost.milliseconds:.0f} ms a step, "
                f"{run} for a run of {recipe.steps:,} steps"
            )
        each = [self.seconds(task) for task in to_do]
        at_once = min(self.jobs, os.cpu_count() or 1)  # more runs than cores share the cores
        print(
            f"{len(to_do)} runs to do ({num_kept} kept): {duration(sum(each))} one after the other, "
            f"{duration(step_costs.time_at_once(each, at_once))} with {at_once} at a time on an otherwise idle machine"
        )

    def _to_do(self, tasks: Sequence[Task]) -> tuple[list[Task], int]:
        """Return the tasks that have no record yet, and how many have one."""
        different = distinct(tasks)
        to_do = [task for task in different if self.records.find(task) is None]
        return to_do, len(different) - len(to_do)

    def seconds(self, task: Task) -> float:
        """Return the time that a run takes."""
        return step_costs.seconds(task.recipe, self.costs[task.method], self.held_out_tokens)


def _checked(
    methods: Sequence[str],
    recipe: Recipe,
    execution: Execution,
    seeds: int,
    jobs: int | None,
    tune: Sequence[str],
    tuning_seeds: int,
    tuning_steps: int | None,
) -> tuple[dict[str, Recipe], list[Tuning], int]:
    """Check the options, and return what they mean."""
    if recipe.mixing != BASE.mixing:
        raise ValueError("mixing must be given as METHOD, as in gomhc compare none go; drop --mixing")
    if seeds == 1:
        raise ValueError("seeds must be at least 2, because one seed shows no difference from chance; got 1")
    require_whole("seeds", seeds, 2, LONGEST_COMPARISON)
    if jobs is None:
        on_gpu = execution.device != "cpu" and torch.cuda.is_available()
        jobs = 1 if on_gpu else os.cpu_count() or 1
    require_whole("jobs", jobs, 1, MOST_JOBS)
    jobs = jobs if int(os.environ.get("WORLD_SIZE", 1)) == 1 else 1
    recipes = recipes_of(methods, recipe)
    if not tune and (tuning_seeds, tuning_steps) != (1, None):
        raise ValueError("--tuning-seeds and --tuning-steps work only together with --tune; add --tune")
    tunings = [Tuning.parse(text, recipe, tuning_seeds, tuning_steps) for text in tune]
    for tuning in tunings:
        for method, own in recipes.items():
            tuning.require(method, own)
    options = [tuning.option for tuning in tunings]
    if twice := [option for index, option in enumerate(options) if option in options[:index]]:
        raise ValueError(f"every option is tuned once, with all its values; got {twice[0]} twice")
    return recipes, tunings, jobs


def _require_memory(method: str, recipe: Recipe, vocab_size: int, processes: World) -> None:
    try:
        require_memory(recipe, recipe.gpt_config(vocab_size), processes)
    except ValueError as error:
        raise ValueError(f"method {method}: {error}") from None


def _watch_turns(turns: Iterator[Turn], total: int) -> Iterator[Turn]:
    return with_progress(turns, total, describe=lambda turn: f"timing: {turn}")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock the folder in the main process, and delete what a killed one left half written."""
    if not _is_main():
        yield
        return
    with lock(out / ".lock", str(out)):
        for name in ("compare.json", "compare.html", "costs.json", "costs-tuned.json"):
            remove_unfinished(out, name)
        yield


def _failed(failures: Sequence[Outcome]) -> str:
    """Return what to say of runs that failed: the words of the first, and its traceback where they are not enough."""
    first, number = failures[0], len(failures)
    assert first.failure is not None
    runs = "1 run failed" if number == 1 else f"{number} runs failed, the first of them"
    line = f"{runs}: {first.task}: {first.failure.words}"
    is_enough = first.failure.is_expected and not is_debugged()
    return line if is_enough else f"{first.failure.traceback}\n{line}"


def _require_folders(*paths: Path) -> None:
    """Raise a ValueError unless each of these is a folder, or can become one."""
    for path in paths:
        if os.path.lexists(path) and not path.is_dir():
            raise ValueError(f"{path} must be a folder, got a file; move the file, or choose another folder")


def _stop_at(file: Path) -> None:
    """Create the file at which runs save and stop; called in the handler of a signal."""
    file.touch()
    if _is_main():
        say_at_once("stopping after the current steps; press Ctrl-C again to stop without saving")


def _is_main() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def _say(line: str) -> None:
    if _is_main():
        print(line, file=sys.stderr, flush=True)
