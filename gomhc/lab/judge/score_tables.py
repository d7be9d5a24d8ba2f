"""The tables of a judgement: scores of each judge, agreement of judges, and differences between models.

A table is a value here. `gomhc.lab.cli.score_table` formats it for a terminal, `gomhc.lab.report.judge_latex` for
LaTeX, and `gomhc.lab.report.judge_page` for HTML and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.lab.judge.answers import CRITERIA
from gomhc.lab.judge.judgement import Judgement, Mark
from gomhc.statistics import Difference, Estimate

NONE = "–"
"""Text of a cell without a value."""


@dataclass(frozen=True)
class ScoreCell:
    """A text, and whether its number is the maximum of the column or near it."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """Sections of rows under a header, with a title and a caption."""

    name: str
    """Kind of the table, for labels."""
    title: str
    header: Sequence[str]
    sections: Sequence[Sequence[Sequence[ScoreCell]]]
    """Groups of rows, separated by a line."""
    caption: str


def all_tables(judgement: Judgement) -> list[ScoreTable]:
    """Return all tables: agreement needs several judges, and differences need several models."""
    judges = range(len(judgement.judges))
    return [
        *(scores_table(judgement, judge) for judge in judges),
        *([agreement_table(judgement)] if len(judges) > 1 else []),
        *(differences_table(judgement, judge) for judge in judges if len(judgement.models) > 1),
    ]


def scores_table(judgement: Judgement, judge: int) -> ScoreTable:
    """Return the paper's table: mean ± standard error of the consensus scores, and ICC(3,1) of the trials."""
    body = [
        [
            ScoreCell(scores.model),
            *(ScoreCell(_estimate(value), mark) for value, mark in zip(scores.estimates, scores.marks, strict=True)),
            ScoreCell(f"{scores.missing} of {scores.trials}"),
        ]
        for scores in judgement.model_scores(judge)
    ]
    foot = [[ScoreCell("ICC(3,1)"), *_numbers(judgement.reliability(judge)), ScoreCell("")]]
    reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(judgement.reasons[judge].items()))
    return ScoreTable(
        name="scores",
        title=f"Stories judged by {judgement.judges[judge]}",
        header=("model", *CRITERIA, "missing"),
        sections=[body, foot] if judgement.trials > 1 else [body],
        caption=f"Mean ± standard error over {len(judgement.openings)} stories per model; the score of a story is the "
        f"mean of {_plural(judgement.trials, 'independent trial')}. Bold: the maximum; underlined: within one standard "
        "error of it. ICC(3,1): consistency of the trials. Missing: trials without scores"
        + (f" ({reasons})." if reasons else "."),
    )


def agreement_table(judgement: Judgement) -> ScoreTable:
    """Return Spearman's rho and ICC(3,1) of the consensus scores of every two judges."""
    sections = [
        [
            [ScoreCell(" vs. ".join(pair.judges)), ScoreCell("Spearman ρ"), *_numbers(pair.spearman)],
            [ScoreCell(""), ScoreCell("cross-model ICC(3,1)"), *_numbers(pair.icc)],
        ]
        for pair in judgement.agreements()
    ]
    return ScoreTable(
        name="agreement",
        title="Agreement of the judges",
        header=("judges", "measure", *CRITERIA),
        sections=sections,
        caption="Computed over the stories of all models that both judges scored. ICC(3,1) measures consistency: a "
        "constant difference between two judges does not lower it.",
    )


def differences_table(judgement: Judgement, judge: int) -> ScoreTable:
    """Return the differences between every two models on the same openings."""
    rows = [
        [ScoreCell(" − ".join(pair.models)), *(ScoreCell(_difference(value)) for value in pair.differences)]
        for pair in judgement.comparisons(judge)
    ]
    return ScoreTable(
        name="differences",
        title=f"Differences between models, judged by {judgement.judges[judge]}",
        header=("models", *CRITERIA),
        sections=[rows],
        caption="Mean difference on the same openings, with its 95 % bootstrap interval over openings. An interval "
        "that excludes 0 is marked *, without correction for the number of comparisons.",
    )


def _estimate(value: Estimate) -> str:
    if math.isnan(value.mean):
        return NONE
    error = NONE if math.isnan(value.standard_error) else f"{value.standard_error:.2f}"
    return f"{value.mean:.2f} ± {error}"


def _difference(value: Difference) -> str:
    if math.isnan(value.low):
        return NONE if math.isnan(value.mean) else f"{value.mean:+.2f}"
    star = " *" if value.low > 0 or value.high < 0 else ""
    return f"{value.mean:+.2f} [{value.low:+.2f}, {value.high:+.2f}]{star}"


def _numbers(coefficients: Sequence[float]) -> list[ScoreCell]:
    return [ScoreCell(NONE if math.isnan(number) else f"{number:.3f}") for number in coefficients]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
