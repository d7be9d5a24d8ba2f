"""The tables of a judgement as a section of the report, and as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.exhibit import Cell, Emphasis, Table, Value
from gomhc.lab.judge.judgement import Judgement, Mark
from gomhc.lab.judge.score_tables import ScoreTable, all_tables
from gomhc.lab.report.page import Page, Section

ANCHOR = "judge"
EMPHASIS: dict[Mark, Emphasis] = {"": "", "maximum": "bold", "near": "underlined"}
PAPER = (
    "GPT-4.1 scores 70 stories of each of five models with 30 M parameters, three times each (table 3). go-mHC (s = 2) "
    "has the highest mean in every criterion; half of the other means are within one standard error of it. Appendix "
    "G.3 adds two smaller judges and their agreement. The paper gives no intervals for differences between models."
)


def judge_section(judgement: Judgement) -> Section:
    """Return the scores of each judge, the agreement of judges, and the differences between models."""
    return Section(
        title="Stories, judged by language models",
        anchor=ANCHOR,
        paragraphs=[
            f"Scores from 1 to 10 by {_and(judgement.judges)} for stories of {_and(judgement.models)}. All scores are "
            "in judge.json, which gomhc judge wrote.",
            "The paper does not publish its prompts and openings, so these scores can be compared with each other, but "
            "not with the paper's tables.",
        ],
        aside=PAPER,
        exhibits=[_table(table) for table in all_tables(judgement)],
    )


def judge_page(judgement: Judgement) -> Page:
    """Return the section as a page of its own."""
    return Page(title="Stories judged by language models", sections=[judge_section(judgement)])


def _table(table: ScoreTable) -> Table:
    rows: list[Sequence[Cell]] = [
        (name.text, *(Value(cell.text, EMPHASIS[cell.mark]) for cell in cells))
        for section in table.sections
        for name, *cells in section
    ]
    return Table(title=table.title, header=table.header, rows=rows, caption=table.caption)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
