"""What the page of a reproduction shows of a study: its answer on a card; then table, differences and curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gomhc.birkhoff.registry import NO_MIXING
from gomhc.lab.comparison.comparison_exhibits import curves_plot, differences_plot, loss_table
from gomhc.lab.comparison.result import CUT_SHORT, SECONDS, Result, difference_between, method_with
from gomhc.lab.comparison.study import MORE_SEEDS, answers
from gomhc.lab.comparison.words import answer, brief_clause, difference_of, side, signed, steps_of
from gomhc.lab.exhibits.exhibit import Badge, Card, Exhibit, Link
from gomhc.lab.training.recipe import AS_WIDE

GO, FOUR = "go", 4
BADGES = {
    -1: Badge("better than plain", "good"),
    0: Badge("no difference shown", "none"),
    1: Badge("worse than plain", "bad"),
}
"""Side of zero on which the interval lies -> what a card says."""


def study_exhibits(study: Mapping[str, Result]) -> list[Exhibit]:
    """Return differences, losses and learning curves of each stage of a study."""
    exhibits: list[Exhibit] = []
    for name, result in study.items():
        words = " ".join(answer(result))
        exhibits += [
            replace(loss_table(result), title=f"Study of residual streams, {name.replace('-', ' ')}"),
            differences_plot(result, words),
            curves_plot(result),
        ]
    return exhibits


def study_card(study: Mapping[str, Result], link: Link) -> Card | None:
    """Return what the stages that answer the question say of go-mHC; the number is that of the last one."""
    found = [(result, _go(result)) for result in answers(study)]
    told = [(result, go, difference_of(result, go)) for result, go in found if go is not None]
    if not told or side(told[-1][2]) is None:
        return None
    result, go, difference = told[-1]
    assert difference is not None
    clauses = [f"in {steps_of(result)}, {brief_clause(result, one)}" for result, _, one in told if one]
    sentences = [f"In small language models on {result['corpus']['name']}, {'; '.join(clauses)}."]
    more = study.get(MORE_SEEDS, result)
    if (wide := method_with(more, AS_WIDE + GO, FOUR)) is not None:
        against = difference_between(more, go, wide["method"])
        sentences.append(f"{brief_clause(more, against)}.")
    if result["equal_seconds"] != CUT_SHORT and (seconds := difference_of(result, go, SECONDS)) is not None:
        sentences.append(f"At equal training time, {brief_clause(result, seconds)}.")
    return Card(
        number=signed(difference["mean"]),
        text=f"{' '.join(sentences)} Differences in nats per token, with the 95 % interval over seeds.",
        badge=BADGES[side(difference) or 0],
        link=link,
        plot=differences_plot(result),
    )


def _go(result: Result) -> str | None:
    """Return the method of a stage that is go-mHC by default, with four streams; None unless the first one is plain."""
    go = method_with(result, GO, FOUR)
    return go["method"] if go is not None and result["methods"][0]["recipe"]["mixing"] == NO_MIXING else None
