"""How does a judgement look on a page? A section with all its tables, for the report or for a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.exhibits.exhibit import Cell, Emphasis, Table, Value
from gomhc.lab.judge import tables
from gomhc.lab.judge.judgement import Judgement, Mark
from gomhc.lab.report.page import Page, Section

ANCHOR = "judge"
EMPHASIS: dict[Mark, Emphasis] = {"": "", "maximum": "bold", "near": "underlined"}
PAPER = (
    "GPT-4.1 scores 70 stories of each of five models of 30 M, three times each (table 3). go-mHC (s = 2) is highest "
    "by every criterion, and half of the others' scores are within one standard error of its own. Appendix G.3 has two "
    "smaller judges, and how the three agree. There are no intervals of differences between models."
)


def judge_section(judgement: Judgement) -> Section:
    """Scores of each judge, agreement of the judges, differences between the models."""
    return Section(
        title="Stories, judged by language models",
        anchor=ANCHOR,
        paragraphs=[
            f"Scores from 1 to 10 that {_and(judgement.judges)} gave to stories of {_and(judgement.models)}. All of "
            "them are in judge.json, which gomhc judge wrote.",
            "The paper prints neither its prompts nor its openings, so these scores are comparable with each other, "
            "not with its tables.",
        ],
        aside=PAPER,
        exhibits=[_table(table) for table in tables.all_tables(judgement)],
    )


def judge_page(judgement: Judgement) -> Page:
    """The section as a page of its own."""
    return Page(title="Whose stories are better?", sections=[judge_section(judgement)])


def _table(table: tables.Table) -> Table:
    rows: list[Sequence[Cell]] = [
        (name.text, *(Value(cell.text, EMPHASIS[cell.mark]) for cell in values))
        for section in table.sections
        for name, *values in section
    ]
    return Table(title=table.title, header=table.header, rows=rows, caption=table.caption)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
