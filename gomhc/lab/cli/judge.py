"""`gomhc judge`: how good are the stories?"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gomhc.lab.cli.terminal import needs, table_console, with_progress
from gomhc.lab.files import require_writable, write_atomically
from gomhc.lab.judge import cost, evaluation
from gomhc.lab.judge.judgement import FILE, Judgement
from gomhc.lab.judge.options import Options
from gomhc.lab.judge.protocol import Prompts, Protocol
from gomhc.lab.judge.store import Question, Store
from gomhc.lab.judge.stories import Story, load_openings
from gomhc.lab.judge.tables import all_tables
from gomhc.lab.report import judge_tables

if TYPE_CHECKING:
    from gomhc.lab.report.page import Page

FILES = ("judge.md", "judge.tex", "judge.html", FILE)
"""What `--out` gets."""
MOST_TROUBLES = 5
"""Of an endpoint that are told, each once."""


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
    if missing := [str(run) for run in runs if not run.exists()]:
        raise ValueError(f"there is no run {missing[0]}; gomhc train makes one")
    try:
        with Store(options.store) as store:
            _judge(runs, options, store)
    except sqlite3.Error as error:
        sys.exit(f"gomhc judge: {options.store}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; answers are kept in {options.store}, and the same command goes on from there")


def _judge(runs: Sequence[Path], options: Options, store: Store) -> None:
    """Sample, ask, tell."""
    if options.out is not None:
        with needs("report", "--out"):
            from gomhc.lab.report.judge_page import judge_page
        for name in FILES:
            require_writable(options.out / name)
    if not runs:
        raise ValueError("give at least one RUN: a directory of `gomhc train`, or a file of stories")
    openings = load_openings(options.openings)
    protocol = Protocol(prompts=Prompts.load(options.prompts), settings=options.settings)
    models = {}
    for run, label in zip(runs, evaluation.labels(runs), strict=True):
        watch = partial(with_progress, total=len(openings), describe=partial(_story_of, label))
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
        table_console().print(judge_tables.terminal_table(table))
    _print_spent(questions, options, store)
    if options.out is not None:
        _write_judgement(options.out, found, judge_page(found))
    without = sum(store.answer(question) is None for question in to_ask)
    if without:
        sys.exit(f"gomhc judge: {without} questions got no answer; the same command asks them again")


def _story_of(label: str, _: Story) -> str:
    return f"stories of {label}"


def _ask(questions: Sequence[Question], protocol: Protocol, options: Options, store: Store) -> None:
    with needs("judge", "gomhc judge"):
        from gomhc.lab.judge.asking import EndpointError, ask
    told: set[str] = set()

    def tell(trouble: str) -> None:
        if trouble not in told and len(told) < MOST_TROUBLES:
            told.add(trouble)
            print(f"no answer yet: {trouble}; asking again", file=sys.stderr, flush=True)

    answered = ask(questions, protocol, options.asking, store, tell)
    try:
        for _ in with_progress(answered, len(questions), lambda question: f"asked {question.judge}"):
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
    texts = (page.markdown(), judge_tables.latex(found), page.html(), found.to_json())
    for name, text in zip(FILES, texts, strict=True):
        write_atomically(directory / name, text)
    print(f"wrote {', '.join(FILES)} to {directory}")
