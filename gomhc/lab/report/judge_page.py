"""A judgement as a section of the report, and as a page of its own that opens with the ranking of the models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gomhc.lab.exhibits.exhibit import Cell, Emphasis, Plot, Table, Value, listed
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.judge.answers import CRITERIA
from gomhc.lab.judge.judgement import Judgement, Mark, Ranked
from gomhc.lab.judge.score_tables import ScoreTable, all_tables
from gomhc.lab.report.page import Page, Section
from gomhc.statistics import Difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANCHOR = "judge"
COLORS = ("#0077BB", "#EE7733", "#009988", "#EE3377", "#6B5BD2", "#A8801C")
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
            *rankings(judgement),
            f"{listed(judgement.judges)} scored stories of {listed(judgement.models)} from 1 to 10. All scores are in "
            "judge.json, which gomhc judge wrote.",
            "The paper does not publish its prompts and openings, so these scores can be compared with each other, but "
            "not with the paper's tables.",
        ],
        aside=PAPER,
        exhibits=[_table(table) for table in all_tables(judgement)],
    )


def judge_page(judgement: Judgement) -> Page:
    """Return the section as a page of its own, the ranking first."""
    section = judge_section(judgement)
    first = rankings(judgement)
    return Page(
        title="Stories judged by language models",
        found=first,
        opening=[_plot(judgement)],
        sections=[replace(section, paragraphs=section.paragraphs[len(first) :])],
    )


def rankings(judgement: Judgement) -> list[str]:
    """Return a sentence or two for each judge: the order of the models, and which differences are significant."""
    return [_ranking(judgement, judge) for judge in range(len(judgement.judges))]


def _ranking(judgement: Judgement, judge: int) -> str:
    name, ranking = judgement.judges[judge], judgement.ranking(judge)
    if not ranking:
        return f"{name} gave no scores."
    order = ", ".join(f"{place.model} ({place.estimate.mean:.2f})" for place in ranking)
    if len(ranking) == 1:
        return f"{name} gives {order} out of 10, as the mean over all criteria."
    first = ranking[0].model
    groups = [
        (f"{first} is significantly ahead of", [place for place in ranking[1:] if _ahead(place.behind)]),
        (f"no difference is shown between {first} and", [place for place in ranking[1:] if not _ahead(place.behind)]),
    ]
    told = [f"{words} {listed([_behind(place) for place in places])}" for words, places in groups if places]
    return f"{name} ranks {order}, by the mean over all criteria. {_sentence('; '.join(told))}"


def _ahead(behind: Difference | None) -> bool:
    return behind is not None and behind.low > 0


def _behind(place: Ranked) -> str:
    behind = place.behind
    if behind is None or math.isnan(behind.low):
        return place.model
    return f"{place.model} ({behind.mean:+.2f}, 95 % interval {behind.low:+.2f} to {behind.high:+.2f})".replace(
        "-", "−"
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper() if text.startswith('no ') else text[0]}{text[1:]}."


def _plot(judgement: Judgement) -> Plot:
    return Plot(
        draw=lambda: _draw(judgement),
        caption="Mean scores and their standard errors: a row for each model, a colour for each judge. Further right "
        "is better. The error bars do not show whether a difference is significant, because models are compared on "
        "the same openings.",
    )


def _draw(judgement: Judgement) -> Figure:
    models, judges = judgement.models, judgement.judges
    figure = new_figure(6.4, 1.2 + (0.25 + 0.15 * len(judges)) * len(models))
    panels = figure.subplots(1, len(CRITERIA), sharey=True)
    for criterion, axes in enumerate(panels):
        for judge, name in enumerate(judges):
            color = COLORS[judge % len(COLORS)]
            for row, scores in enumerate(judgement.model_scores(judge)):
                estimate, height = scores.estimates[criterion], row + 0.15 * (judge - (len(judges) - 1) / 2)
                axes.errorbar(
                    estimate.mean, height, xerr=estimate.standard_error, fmt="o", color=color, markersize=5,
                    label=name if row == 0 else None,
                )  # fmt: skip
        axes.set_title(CRITERIA[criterion])
        axes.grid(axis="x", alpha=0.25, color=INK)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _table(table: ScoreTable) -> Table:
    rows: list[Sequence[Cell]] = [
        (name.text, *(Value(cell.text, EMPHASIS[cell.mark]) for cell in cells))
        for section in table.sections
        for name, *cells in section
    ]
    return Table(title=table.title, header=table.header, rows=rows, caption=table.caption)
