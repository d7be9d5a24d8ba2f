"""Which tables does a judgement make? Scores by each judge, how judges agree, and how models differ.

A table is a value here; `gomhc.lab.report.judge_tables` writes it for a terminal and in LaTeX,
`gomhc.lab.report.judge_page` in HTML and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.lab.judge.answers import CRITERIA
from gomhc.lab.judge.judgement import Judgement, Mark
from gomhc.statistics import Difference, Estimate

NONE = "–"
"""Stands where there is nothing to tell."""


@dataclass(frozen=True)
class Cell:
    """A text, and whether it is the maximum of its column or near it."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a header, with what a reader must know below."""

    name: str
    """Of the kind of table, for labels."""
    title: str
    header: Sequence[str]
    sections: Sequence[Sequence[Sequence[Cell]]]
    """Groups of rows, set apart by a line."""
    caption: str


def all_tables(judgement: Judgement) -> list[Table]:
    """Scores of each judge, agreement if there are several, differences if there are several models."""
    judges = range(len(judgement.judges))
    return [
        *(scores_table(judgement, judge) for judge in judges),
        *([agreement_table(judgement)] if len(judges) > 1 else []),
        *(differences_table(judgement, judge) for judge in judges if len(judgement.models) > 1),
    ]


def scores_table(judgement: Judgement, judge: int) -> Table:
    """The paper's table: mean ± standard error of the consensus scores, and ICC(3,1) of the trials."""
    rows = judgement.rows(judge)
    body = [
        [
            Cell(row.model),
            *(Cell(_estimate(value), mark) for value, mark in zip(row.estimates, row.marks, strict=True)),
            Cell(f"{row.missing} of {row.trials}"),
        ]
        for row in rows
    ]
    reliability = judgement.reliability(judge)
    foot = [[Cell("ICC(3,1)"), *(Cell(_number(value)) for value in reliability), Cell("")]]
    reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(judgement.reasons[judge].items()))
    return Table(
        name="scores",
        title=f"Stories judged by {judgement.judges[judge]}",
        header=("model", *CRITERIA, "missing"),
        sections=[body, foot] if judgement.trials > 1 else [body],
        caption=f"Mean ± standard error over {len(judgement.openings)} stories a model; the score of a story is the "
        f"mean of {_plural(judgement.trials, 'independent trial')}. Bold: the maximum; underlined: within one standard "
        "error of it. ICC(3,1): how consistent the trials are. Missing: trials that gave no scores"
        + (f" ({reasons})." if reasons else "."),
    )


def agreement_table(judgement: Judgement) -> Table:
    """How any two judges agree: Spearman's rho and ICC(3,1) of their consensus scores."""
    sections = [
        [
            [Cell(" vs. ".join(pair.judges)), Cell("Spearman ρ"), *(Cell(_number(value)) for value in pair.spearman)],
            [Cell(""), Cell("cross-model ICC(3,1)"), *(Cell(_number(value)) for value in pair.icc)],
        ]
        for pair in judgement.agreements()
    ]
    return Table(
        name="agreement",
        title="Agreement of the judges",
        header=("judges", "measure", *CRITERIA),
        sections=sections,
        caption="Over the stories of all models that both judges scored. ICC(3,1) measures consistency: a judge who is "
        "stricter by a constant agrees.",
    )


def differences_table(judgement: Judgement, judge: int) -> Table:
    """Models against each other on the same openings."""
    rows = [
        [Cell(" − ".join(pair.models)), *(Cell(_difference(value)) for value in pair.differences)]
        for pair in judgement.comparisons(judge)
    ]
    return Table(
        name="differences",
        title=f"Differences between models, judged by {judgement.judges[judge]}",
        header=("models", *CRITERIA),
        sections=[rows],
        caption="Mean difference on the same openings, with its 95 % bootstrap interval over openings. An interval "
        "that does not hold 0 is marked *; nothing corrects for the number of comparisons.",
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


def _number(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.3f}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
