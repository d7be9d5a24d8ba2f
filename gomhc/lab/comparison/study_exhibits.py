"""What the page of a reproduction shows of a study: its answer on a card; then table, differences and curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gomhc.lab.comparison.comparison_exhibits import curves_plot, differences_plot, loss_table
from gomhc.lab.comparison.result import Result
from gomhc.lab.comparison.words import answer, difference_clause, difference_of, side, signed, steps_of
from gomhc.lab.exhibits.exhibit import Badge, Card, Exhibit, Link

PLAIN, GO = "none", "go"
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
    """Return what the stages with most seeds say of go-mHC against the plain network; the number is the last one's."""
    compared = [(result, difference_of(result, str(_go(result)))) for result in study.values()]
    stages = [(result, difference) for result, difference in compared if side(difference) is not None]
    if not stages:
        return None
    most = max(len(result["seeds"]) for result, _ in stages)
    answers = [(result, difference) for result, difference in stages if len(result["seeds"]) == most]
    result, difference = answers[-1]
    assert difference is not None
    told = "; ".join(f"in {steps_of(result)}, {difference_clause(result, one)}" for result, one in answers if one)
    return Card(
        number=signed(difference["mean"]),
        text=f"In small language models on {result['corpus']['name']}, {told}.",
        badge=BADGES[side(difference) or 0],
        link=link,
        plot=differences_plot(result),
    )


def _go(result: Result) -> str | None:
    """Return the method of a stage that is go-mHC by default, with four streams; None unless the first one is plain."""
    found = [
        method["method"]
        for method in result["methods"]
        if (method["recipe"]["mixing"], method["recipe"]["num_streams"]) == (GO, 4)
    ]
    return found[0] if len(found) == 1 and result["methods"][0]["recipe"]["mixing"] == PLAIN else None
