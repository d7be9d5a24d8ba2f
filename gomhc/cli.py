"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

try:
    import tyro
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

import torch

import gomhc
from gomhc import kernels
from gomhc.experiments import exactness, timing
from gomhc.experiments.bench_layer import Layer
from gomhc.experiments.bench_projection import Projection
from gomhc.experiments.bench_step import Step
from gomhc.experiments.experiment import Experiment, Scale
from gomhc.experiments.registry import EXPERIMENTS
from gomhc.inspection import Inspection, inspect
from gomhc.inspection.findings import findings
from gomhc.judge import cost, evaluation
from gomhc.judge.judgement import FILE as JUDGEMENT_FILE
from gomhc.judge.judgement import Judgement
from gomhc.judge.options import Options
from gomhc.judge.protocol import Prompts, Protocol
from gomhc.judge.store import Question, Store
from gomhc.judge.stories import Story, load_openings
from gomhc.judge.tables import all_tables
from gomhc.recipes import DEFAULT, RECIPES
from gomhc.report import judge_tables, tables
from gomhc.report.inspection_table import inspection_table
from gomhc.report.progress import TrainingProgress
from gomhc.results.record import Store as RecordStore
from gomhc.results.record import write_atomically
from gomhc.training import Execution, NotFinite, Recipe, load_run
from gomhc.training import resume as resume_training
from gomhc.training import train as start_training
from gomhc.training.sampling import stream_text
from gomhc.version import __version__

if TYPE_CHECKING:
    from gomhc.experiments.schedule import Done, Task
    from gomhc.report.page import Page

T = TypeVar("T")
MOST_LINES = 40
"""Of progress, where there is no terminal."""
MOST_TROUBLES = 5
"""Of an endpoint that are told, each once."""

SAMPLE_TEXT = (
    "Once upon a time there was a little boat that was afraid of the sea. Every morning the fishermen rowed out, and "
    "the little boat stayed in the harbour and watched them go. One day a storm came, and nobody saw the old man who "
    "had lost his oar. Then the little boat was not afraid any more. It went out, found him, and brought him home."
)
"""What a model reads if nothing else is asked for."""

app = tyro.extras.SubcommandApp()


@app.command
def version() -> None:
    """Print the version of gomhc and of torch."""
    print(f"gomhc {__version__}, torch {torch.__version__}")


@app.command
def doctor() -> None:
    """Say which kernels run on this machine, and why."""
    version()
    print(f"{torch.get_num_threads()} threads, CUDA {'available' if torch.cuda.is_available() else 'not available'}")
    for name, reason in kernels.reasons().items():
        print(f"{name:8} {reason}")


@app.command(name="exactness")
def exactness_table(
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None, seconds: float = 0.2
) -> None:
    """Print how exact each parametrization is, and what it costs.

    Args:
        json_file: Also write the rows to this file.
        seconds: The least time that each timing takes; more is steadier.
    """
    rows = exactness.rows(seconds)
    found = list(_with_progress(rows, exactness.num_rows(), lambda row: f"{row.method} d={row.num_streams}"))
    _table_console().print(tables.exactness_table(found))
    if json_file is not None:
        _write_json(json_file, [asdict(row) for row in found])


@app.command
def bench(
    benchmark: Annotated[
        Projection | Layer | Step,
        tyro.conf.arg(name=""),
        tyro.conf.OmitSubcommandPrefixes,
    ],
) -> None:
    """Time the methods beside each other: the maps alone, a whole layer, or a training step."""
    draw_growth = _growth_plot() if isinstance(benchmark, Projection) and benchmark.grow else None
    torch.set_num_threads(benchmark.threads)
    contenders = benchmark.contenders()
    turns = timing.turns(contenders, benchmark.rounds)
    turns_with_progress = _with_progress(turns, timing.num_turns(contenders, benchmark.rounds))
    found = timing.rows(list(turns_with_progress), benchmark.references)
    _table_console().print(tables.benchmark_table(benchmark, found))
    if benchmark.json is not None:
        _write_json(benchmark.json, _record(benchmark, found))
    if isinstance(benchmark, Projection) and draw_growth is not None:
        draw_growth(found, benchmark.plot)
        print(f"wrote {benchmark.plot}")


@app.command
def reproduce(
    scale: Scale = "quick",
    out: Path = Path("reproduction"),
    only: tuple[str, ...] = (),
    list_experiments: Annotated[bool, tyro.conf.arg(name="list"), tyro.conf.FlagCreatePairsOff] = False,
    jobs: int = os.cpu_count() or 1,
    format: Literal["html", "md"] = "html",
) -> None:
    """Measure what the paper says, and write one page with a verdict on every claim.

    Finished runs are kept in OUT/records and not repeated, unless the code that they depend on has changed: an
    interrupted command goes on where it was. Tables of `gomhc judge --out OUT` become a section of the page.

    Args:
        scale: quick (minutes), laptop (the paper's sizes but for the language model; about an hour) or paper (a GPU).
        out: Folder for the page, claims.json and the records; judge.json is read if it is there.
        only: Run these experiments alone; the page also shows what earlier commands kept.
        list_experiments: Print the experiments and their runs, and stop.
        jobs: How many runs at once.
        format: Of the page.
    """
    experiments = _chosen(only)
    if list_experiments:
        for experiment in experiments:
            print(f"{experiment.name:16} {len(experiment.runs(scale)):4} runs   {experiment.title}")
        return
    if jobs < 1:
        sys.exit(f"--jobs must be at least 1, got {jobs}")
    report, schedule = _report_modules()
    judgement = Judgement.load(out / JUDGEMENT_FILE) if (out / JUDGEMENT_FILE).exists() else None
    store = RecordStore(out / "records")
    planned = schedule.plan(schedule.tasks_of(experiments, scale), store)
    for problem in planned.damaged:
        print(f"damaged record: {problem}; running it again", file=sys.stderr)
    print(f"{len(planned.kept)} runs kept, {len(planned.to_do)} to do", file=sys.stderr)
    errors = _perform(schedule.perform(planned.to_do, store, jobs), planned.to_do)
    records = schedule.complete(EXPERIMENTS, scale, store)
    page = report.report(EXPERIMENTS, records, scale, errors, judgement)
    claims = [item.as_json() for item in report.judge(EXPERIMENTS, records)]
    write_atomically(out / "claims.json", json.dumps(claims, indent=1, ensure_ascii=False) + "\n")
    path = out / f"report.{format}"
    write_atomically(path, page.html() if format == "html" else page.markdown())
    print(path)
    if errors:
        sys.exit(f"{len(errors)} runs failed; the page tells how")


@app.command
def judge(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")],
    options: Annotated[Options, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes],
) -> None:
    """Have language models score the stories of trained models: grammar, creativity and consistency, 1 to 10.

    Every answer is kept at once and never asked for again: after an interruption, run the same command. The key is read
    from the environment variable OPENAI_API_KEY and written nowhere.

    Args:
        runs: Directories of `gomhc train`, or files of stories: lines of {"opening": "...", "completion": "..."}.
        options: Everything else.
    """
    draw_page = _judge_page() if options.out is not None else None
    if missing := [str(run) for run in runs if not run.exists()]:
        raise ValueError(f"there is no run {missing[0]}; gomhc train makes one")
    try:
        with Store(options.store) as store:
            _judge(runs, options, store, draw_page)
    except sqlite3.Error as error:
        sys.exit(f"gomhc judge: {options.store}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; answers are kept in {options.store}, and the same command goes on from there")


@dataclass(frozen=True, kw_only=True)
class Train:
    """A run: what is trained, where it is written, and how it is computed."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Path | None = None
    """The folder of the run; without, a new one in runs/."""
    resume: Path | None = None
    """Go on with the run in this folder, from its newest checkpoint, as if it had never stopped."""
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)


TRAININGS = {name: Train(recipe=recipe()) for name, recipe in RECIPES.items()}
if TYPE_CHECKING:
    AnyTraining = Train
else:
    AnyTraining = tyro.extras.subcommand_type_from_defaults(
        TRAININGS, {name: recipe.__doc__ for name, recipe in RECIPES.items()}, prefix_names=False
    )


@app.command
def train(training: Annotated[AnyTraining, tyro.conf.arg(name="")]) -> None:
    """Train a language model; without a recipe, stories-tiny. `gomhc train RECIPE --help` lists all options.

    Each run has a folder with its checkpoints, one JSON record a line (metrics.jsonl) and curves for TensorBoard.
    Ctrl-C saves before it stops. On several processes: torchrun --nproc-per-node 2 -m gomhc train ...
    """
    with TrainingProgress() as progress:
        if training.resume is not None:
            if training.recipe not in [known.recipe for known in TRAININGS.values()] or training.out is not None:
                raise ValueError("--resume takes everything but --device, --compile and --parallel from the run")
            run = training.resume
            done = resume_training(run, training.execution, progress)
        else:
            run = training.out or _free_folder(f"runs/{training.recipe.mixing.partition(':')[0]}")
            done = start_training(training.recipe, run, training.execution, progress)
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"wrote {run} ({done} steps)")
        print(f"gomhc train --resume {run}" if done < progress.recipe.steps else f"gomhc sample {run}")


@app.command
def sample(
    run: Annotated[Path, tyro.conf.Positional],
    prompt: str = "",
    tokens: int = 500,
    temperature: float = 0.5,
    top_k: int | None = None,
    seed: int = 0,
) -> None:
    """Write text with a trained model, as it is made.

    Args:
        run: The folder of the run, or of one of its checkpoints.
        prompt: How the text begins; without, a document from its start.
        tokens: The most tokens that are made.
        temperature: How daring; 0 always takes the likeliest token.
        top_k: Only these many likeliest tokens are drawn from.
        seed: The same seed gives the same text.
    """
    found = load_run(run)
    print(prompt, end="", flush=True)
    options: dict[str, Any] = {"num_tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
    for piece in stream_text(found.model, found.tokenizer, prompt, **options):
        print(piece, end="", flush=True)
    print()


@app.command(name="inspect")
def inspect_model(
    model: Annotated[Path, tyro.conf.Positional],
    text: str = SAMPLE_TEXT,
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None,
    max_tokens: int = 512,
) -> None:
    """Show what the streams of a model do on a text: coefficients, mixing, collapse, gain and gradients of every layer.

    Args:
        model: A run of `gomhc train`, or a folder that save_pretrained wrote, of a model with streams.
        text: What the model reads.
        file: Read the text from this file instead.
        html: Also write a page with pictures to this file.
        json_file: Also write all numbers to this file.
        max_tokens: Only the first tokens of the text are looked at.
    """
    draw_page = _inspection_page() if html is not None else None
    if file is not None:
        text = file.read_text(encoding="utf-8")
    network, encode, longest = _load_model(model)
    found = inspect(network, torch.tensor([encode(text)[: min(max_tokens, longest)]]))
    console = Console() if sys.stdout.isatty() else Console(width=180)
    console.print(inspection_table(found))
    for sentence in findings(found):
        console.print(f"• {sentence}")
    if json_file is not None:
        write_atomically(json_file, json.dumps(found.to_dict(), indent=1) + "\n")
        print(f"wrote {json_file}")
    if html is not None and draw_page is not None:
        write_atomically(html, draw_page(found, f"Streams of {model.resolve().name}", text).html())
        print(f"wrote {html}")


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, and a mistake of the user is one line."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["train"] and (len(arguments) == 1 or _is_option(arguments[1])):
        arguments.insert(1, DEFAULT)
    try:
        app.cli(
            prog="gomhc", description="Exact doubly stochastic maps for multi-stream residual networks.", args=arguments
        )
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except (ValueError, OSError, NotFinite) as error:
        sys.exit(f"error: {error}")


def _judge(runs: Sequence[Path], options: Options, store: Store, draw_page: Callable[[Judgement], Page] | None) -> None:
    """Sample, ask, tell."""
    if not runs:
        raise ValueError("give at least one RUN: a directory of `gomhc train`, or a file of stories")
    openings = load_openings(options.openings)
    protocol = Protocol(prompts=Prompts.load(options.prompts), settings=options.settings)
    models = {}
    for run, label in zip(runs, evaluation.labels(runs), strict=True):
        watch = partial(_with_progress, total=len(openings), describe=partial(_story_of, label))
        models[label] = evaluation.stories_of(run, openings, options.sampling, store, watch)
    questions = evaluation.all_questions(models, options.model, options.trials, protocol.key)
    to_ask = [question for question in questions if store.answer(question) is None]
    if options.dry_run:
        _print_cost(len(questions), to_ask, options, protocol)
        return
    if to_ask:
        store.keep_questions(protocol.key, protocol.text, (question.story for question in to_ask))
        _ask(to_ask, protocol, options, store)
    found = evaluation.judgement(models, options.model, options.trials, protocol.key, store)
    for table in all_tables(found):
        _table_console().print(judge_tables.terminal_table(table))
    _print_spent(questions, options, store)
    if options.out is not None and draw_page is not None:
        _write_judgement(options.out, found, draw_page(found))
    without = sum(store.answer(question) is None for question in to_ask)
    if without:
        sys.exit(f"gomhc judge: {without} questions got no answer; the same command asks them again")


def _story_of(label: str, _: Story) -> str:
    return f"stories of {label}"


def _ask(questions: Sequence[Question], protocol: Protocol, options: Options, store: Store) -> None:
    try:
        from gomhc.judge.asking import EndpointError, ask
    except ModuleNotFoundError as error:
        sys.exit(f"gomhc judge needs {error.name}; install it with: pip install 'gomhc[judge]'")
    told: set[str] = set()

    def tell(trouble: str) -> None:
        if trouble not in told and len(told) < MOST_TROUBLES:
            told.add(trouble)
            print(f"no answer yet: {trouble}; asking again", file=sys.stderr, flush=True)

    answered = ask(questions, protocol, options.asking, store, tell)
    try:
        for _ in _with_progress(answered, len(questions), lambda question: f"asked {question.judge}"):
            pass
    except EndpointError as error:
        sys.exit(f"gomhc judge: {error} (answers are kept in {options.store}; the same command goes on from there)")


def _print_cost(total: int, to_ask: Sequence[Question], options: Options, protocol: Protocol) -> None:
    for name in options.model:
        found = cost.estimate([question for question in to_ask if question.judge == name], protocol)
        print(f"{name}: {found.questions:,} calls, about {found.tell(options.prices(name))}")
    print(f"{total - len(to_ask):,} of {total:,} questions are answered already; nothing was asked now")


def _print_spent(questions: Sequence[Question], options: Options, store: Store) -> None:
    for name in options.model:
        found = cost.spent([question for question in questions if question.judge == name], store)
        print(f"{name}: {found.questions:,} answers, {found.tell(options.prices(name))}")


def _write_judgement(directory: Path, found: Judgement, page: Page) -> None:
    files = {
        "judge.md": page.markdown(),
        "judge.tex": judge_tables.latex(found),
        "judge.html": page.html(),
        JUDGEMENT_FILE: found.to_json(),
    }
    for name, text in files.items():
        write_atomically(directory / name, text)
    print(f"wrote {', '.join(files)} to {directory}")


def _judge_page() -> Callable[[Judgement], Page]:
    """What shows; asked for before anything is judged, so that nobody waits in vain."""
    try:
        from gomhc.report.judge_page import judge_page
    except ModuleNotFoundError as error:
        sys.exit(f"--out needs {str(error.name).partition('.')[0]}; install it with: pip install 'gomhc[report]'")
    return judge_page


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument not in ("-h", "--help")


def _free_folder(name: str) -> Path:
    """The first of name-1, name-2 and so on that does not exist."""
    return next(path for number in count(1) if not (path := Path(f"{name}-{number}")).exists())


def _chosen(only: Sequence[str]) -> Sequence[Experiment]:
    """The experiments of these names, or all."""
    names = [experiment.name for experiment in EXPERIMENTS]
    unknown = [name for name in only if name not in names]
    if unknown:
        sys.exit(f"no experiment is called {', '.join(unknown)}; there are: {', '.join(names)}")
    return [experiment for experiment in EXPERIMENTS if not only or experiment.name in only]


def _report_modules() -> tuple[Any, Any]:
    """What schedules and what shows; asked for before anything is measured, so that nobody waits in vain."""
    try:
        from gomhc.experiments import schedule
        from gomhc.report import reproduction
    except ModuleNotFoundError as error:
        sys.exit(f"reproduce needs {str(error.name).partition('.')[0]}; install it with: pip install 'gomhc[report]'")
    return reproduction, schedule


def _perform(done: Iterator[Done], to_do: Sequence[Task]) -> list[str]:
    """Do the runs with progress; what went wrong with those that failed."""
    errors, finished = [], 0
    try:
        for item in _with_time_left(done, to_do):
            finished += 1
            if item.record is None:
                errors.append(f"{item.task}\n{item.error}")
                print(f"failed: {item.task}: {item.error.strip().splitlines()[-1]}", file=sys.stderr)
    except KeyboardInterrupt:
        left = len(to_do) - finished
        sys.exit(f"interrupted: {finished} runs are kept and {left} are left; the same command goes on from here")
    except BrokenExecutor as error:
        reason = str(error).splitlines()[0]
        sys.exit(
            f"a worker ended unasked ({reason}), as for lack of memory or because the sources changed; {finished} runs "
            f"are kept, and the same command, perhaps with fewer --jobs, goes on from here"
        )
    return errors


def _with_time_left(done: Iterator[Done], to_do: Sequence[Task]) -> Iterator[Done]:
    """As `_with_progress`, with the time left by what each run costs."""
    total, spent, started = sum(task.run.cost for task in to_do), 0.0, time.monotonic()
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("starting", total=total, count=f"0/{len(to_do)}")
            for number, item in enumerate(done, start=1):
                description, count = str(item.task)[:60], f"{number}/{len(to_do)}"
                progress.update(bar, advance=item.task.run.cost, description=description, count=count)
                yield item
        return
    for number, item in enumerate(done, start=1):
        spent += item.task.run.cost
        if number * MOST_LINES // len(to_do) > (number - 1) * MOST_LINES // len(to_do):
            left = (time.monotonic() - started) * (total - spent) / max(spent, 1e-9)
            print(f"[{number}/{len(to_do)}] {item.task}; about {left:.0f} s left", file=sys.stderr, flush=True)
        yield item


def _record(benchmark: timing.Benchmark, found: list[timing.Row]) -> dict[str, Any]:
    """The rows, and what is needed to measure them again."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(benchmark).items()}
    versions = {"gomhc": __version__, "torch": torch.__version__}
    rows = [asdict(row) for row in found]
    return {"benchmark": type(benchmark).__name__.lower(), "options": options, "versions": versions, "rows": rows}


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n")
    print(f"wrote {file}")


def _growth_plot() -> Callable[[list[timing.Row], Path], None]:
    """What draws; asked for before anything is measured, so that nobody waits in vain."""
    try:
        from gomhc.report.figures.growth import growth_plot
    except ModuleNotFoundError as error:
        sys.exit(f"--grow needs {str(error.name).partition('.')[0]}; install it with: pip install 'gomhc[report]'")
    return growth_plot


def _inspection_page() -> Callable[[Inspection, str, str], Page]:
    """What draws; asked for before anything is loaded, so that nobody waits in vain."""
    try:
        from gomhc.report.inspection_page import inspection_page
    except ModuleNotFoundError as error:
        sys.exit(f"--html needs {str(error.name).partition('.')[0]}; install it with: pip install 'gomhc[report]'")
    return inspection_page


def _load_model(folder: Path) -> tuple[torch.nn.Module, Callable[[str], list[int]], int]:
    """A model, what makes tokens of text for it, and how many it can see at once."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; expected a run of `gomhc train` or what save_pretrained wrote")
    if not (folder / "config.json").exists():
        run = load_run(folder)
        return run.model, run.tokenizer.encode, run.model.config.context_length
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError:
        sys.exit("models of transformers need gomhc[hf]; install it with: pip install 'gomhc[hf]'")
    changed = "gomhc" in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    load = gomhc.from_pretrained if changed else AutoModelForCausalLM.from_pretrained
    model: Any = load(folder)
    return model, AutoTokenizer.from_pretrained(folder).encode, model.config.max_position_embeddings


def _table_console() -> Console:
    """Standard output; a table that goes into a file or a pipe is not folded to the width of no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _with_progress(items: Iterable[T], total: int, describe: Callable[[T], str] = str) -> Iterator[T]:
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
