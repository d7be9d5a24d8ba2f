"""`gomhc judge`: scores of language models for the stories of trained models."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gomhc.lab.cli.score_table import terminal_table
from gomhc.lab.cli.terminal import needs, table_console, with_progress
from gomhc.lab.files import require_writable, write_atomically
from gomhc.lab.judge import cost, evaluation
from gomhc.lab.judge.answer_store import AnswerStore, Question
from gomhc.lab.judge.judgement import FILE, Judgement
from gomhc.lab.judge.options import Options
from gomhc.lab.judge.protocol import Prompts, Protocol
from gomhc.lab.judge.score_tables import all_tables
from gomhc.lab.judge.stories import Story, load_openings
from gomhc.lab.report.judge_latex import latex

if TYPE_CHECKING:
    from gomhc.lab.report.page import Page

FILES = ("judge.md", "judge.tex", "judge.html", FILE)
"""Files that `--out` writes."""
MOST_REASONS = 5
"""Maximum number of different reasons for unanswered attempts that are printed, each once."""


def judge(
    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
    ],
    options: Annotated[Options, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes],
) -> None:
    """Have language models score the grammar, creativity and consistency of stories from 1 to 10.

    Every answer is stored when it arrives and never requested again; after an interruption, run the same command again.
    The API key is read from the environment variable OPENAI_API_KEY and never written.

    Args:
        runs: Folders of `gomhc train`, whose models write the stories, or files of stories, with one
            {"opening": "...", "completion": "..."} per line.
        options: All other options.
    """
    if missing := [str(run) for run in runs if not run.exists()]:
        raise ValueError(f"there is no run {missing[0]}; give a folder that gomhc train wrote, or a file of stories")
    try:
        with AnswerStore(options.store) as store:
            _judge(runs, options, store)
    except sqlite3.Error as error:
        sys.exit(f"gomhc judge: {options.store}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; the answers are in {options.store}, and the same command continues from there")


def _judge(runs: Sequence[Path], options: Options, store: AnswerStore) -> None:
    """Sample the stories, ask the judges, print and write the scores."""
    if options.out is not None:
        with needs("report", "--out"):
            from gomhc.lab.report.judge_page import judge_page
        for name in FILES:
            require_writable(options.out / name)
    if not options.dry_run:
        _require_packages()
    if not runs:
        raise ValueError("give at least one RUN before --model: a folder of `gomhc train`, or a file of stories")
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
    judgement = evaluation.judgement(models, options.model, options.trials, protocol.key, store)
    for table in all_tables(judgement):
        table_console().print(terminal_table(table))
    _print_spent(questions, options, store)
    if options.out is not None:
        _write_judgement(options.out, judgement, judge_page(judgement))
    unanswered = sum(store.answer(question) is None for question in to_ask)
    if unanswered:
        sys.exit(f"gomhc judge: {unanswered} questions got no answer; run the same command to ask them again")


def _story_of(label: str, _: Story) -> str:
    return f"stories of {label}"


def _require_packages() -> None:
    """Exit if a package is missing that is imported only after the stories are sampled."""
    with needs("judge", "gomhc judge"):
        import openai  # noqa: F401
        import scipy  # noqa: F401


def _ask(questions: Sequence[Question], protocol: Protocol, options: Options, store: AnswerStore) -> None:
    from gomhc.lab.judge.asking import EndpointError, ask

    printed: set[str] = set()

    def print_reason(reason: str) -> None:
        if reason not in printed and len(printed) < MOST_REASONS:
            printed.add(reason)
            print(f"no answer yet: {reason}; asking again", file=sys.stderr, flush=True)

    answered = ask(questions, protocol, options.asking, store, print_reason)
    try:
        for _ in with_progress(answered, len(questions), lambda question: f"asked {question.judge}"):
            pass
    except EndpointError as error:
        sys.exit(f"gomhc judge: {error} (the answers are in {options.store}; the same command continues from there)")


def _print_cost(total: int, to_ask: Sequence[Question], options: Options, protocol: Protocol) -> None:
    for name in options.model:
        estimate = cost.estimate([question for question in to_ask if question.judge == name], protocol)
        print(f"{name}: {estimate.questions:,} calls, about {estimate.describe(options.prices(name))}")
    print(f"{total - len(to_ask):,} of {total:,} questions are already answered; nothing was asked (dry run)")


def _print_spent(questions: Sequence[Question], options: Options, store: AnswerStore) -> None:
    for name in options.model:
        spent = cost.spent([question for question in questions if question.judge == name], store)
        print(f"{name}: {spent.questions:,} answers, {spent.describe(options.prices(name))}")


def _write_judgement(directory: Path, judgement: Judgement, page: Page) -> None:
    texts = (page.markdown(), latex(judgement), page.html(), judgement.to_json())
    for name, text in zip(FILES, texts, strict=True):
        write_atomically(directory / name, text)
    print(f"wrote {', '.join(FILES)} to {directory}")
