"""The report of a reproduction: claims with verdicts, each figure beside what the paper says, then provenance."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib

from gomhc.lab import plugins
from gomhc.lab.comparison import study
from gomhc.lab.comparison.study_exhibits import study_card
from gomhc.lab.exhibits.exhibit import Badge, Card, Cards, Exhibit, Link, Plot, Table, Tally, Text, listed
from gomhc.lab.experiments.experiment import Experiment, Scale
from gomhc.lab.experiments.lm import TinyLanguageModel
from gomhc.lab.experiments.story_scores import StoryScores
from gomhc.lab.experiments.verdicts import Judged, judge
from gomhc.lab.judge.judgement import Judgement
from gomhc.lab.report import judge_page
from gomhc.lab.report.page import Page, Section, anchor
from gomhc.lab.results.claim import Verdict
from gomhc.lab.results.code_version import PACKAGE
from gomhc.lab.results.record import Record

TONES = {
    Verdict.HOLDS: "good",
    Verdict.HOLDS_AT_REDUCED_SCALE: "fair",
    Verdict.DOES_NOT_HOLD: "bad",
    Verdict.NOT_MEASURED: "none",
}


def report(
    experiments: Sequence[Experiment],
    records: Mapping[str, Sequence[Record]],
    scale: Scale,
    errors: Sequence[str] = (),
    judgement: Judgement | None = None,
) -> Page:
    """The page; `errors` are runs that failed, told where a reader looks first; `judgement` is of stories."""
    judged = judge(experiments, records)
    shown = [experiment for experiment in experiments if records.get(experiment.name)]
    return Page(
        title="go-mHC: does the paper hold?",
        found=_summary(judged, scale),
        opening=_opening(judged, shown, records),
        lead=(
            "Every quantitative statement of the paper “go-mHC: Direct Parameterization of Manifold-Constrained "
            "Hyper-Connections via Generalized Orthostochastic Matrices” is measured by this repository and judged by "
            "a rule, which is given with its result below. Some rules and measures were revised after first results; "
            "LOG.md lists them. go-square-s2 is go-mHC with n² free reals Z and A = Z − Zᵀ, as in the published code.",
            "“Holds at reduced scale” means that the rule is met with fewer samples, steps or parameters than the "
            "paper used. At reduced scale, “does not hold” can mean that the sizes were too small; the column “here” "
            "gives the sizes. In a study with several seeds, a claim counts as not measured if its 95 % interval "
            "includes the limit.",
        ),
        sections=[
            *([_failures(errors)] if errors else []),
            _claims_section(judged, {item.name for item in shown} | ({StoryScores.name} if judgement else set())),
            *(_experiment_section(experiment, records[experiment.name], judged) for experiment in shown),
            *([_judge_section(judgement)] if judgement else []),
            _provenance(experiments, records, scale),
        ],
    )


def made_from(records: Mapping[str, Sequence[Record]], scale: Scale, judgement: Judgement | None) -> str:
    """The last line of a page, with the hash of all that it depends on: a page that ends with it is up to date."""
    shown = repr(sorted(records.items())), scale, "" if judgement is None else judgement.to_json()
    digest = hashlib.sha256("\n".join((*shown, matplotlib.__version__)).encode())
    for path in sorted(
        (
            *PACKAGE.rglob("*.py"),
            *PACKAGE.rglob("*.html"),
            *PACKAGE.rglob("*.css"),
            *plugins.files(),
            *study.files(study.STREAMS),
        )
    ):
        digest.update(path.read_bytes())
    return f"<!-- made from {digest.hexdigest()} -->\n"


def _summary(judged: Sequence[Judged], scale: Scale) -> list[str]:
    """Counts in one sentence."""
    counts = Counter(item.verdict for item in judged if not item.claim.source)
    told = [f"{counts[verdict]} {_phrase(verdict, counts[verdict])}" for verdict in Verdict if counts[verdict]]
    return [f"Of {counts.total()} claims of the paper, measured at scale “{scale}”, {listed(told)}."]


def _opening(
    judged: Sequence[Judged], shown: Sequence[Experiment], records: Mapping[str, Sequence[Record]]
) -> list[Exhibit]:
    """A bar of verdicts, and the findings that a reader should know."""
    counts = Counter(item.verdict for item in judged if not item.claim.source)
    bar = Tally(counts=[(Badge(verdict, TONES[verdict]), counts[verdict]) for verdict in Verdict])
    cards = [card for experiment in _ranked(shown) for card in _cards(experiment, records[experiment.name], judged)]
    return [bar, Cards(title="Main findings", cards=cards)] if cards else [bar]


def _ranked(experiments: Sequence[Experiment]) -> list[Experiment]:
    telling = [experiment for experiment in experiments if experiment.headlines]
    return sorted(telling, key=lambda experiment: experiment.headlines[0].rank)


def _cards(experiment: Experiment, records: Sequence[Record], judged: Sequence[Judged]) -> list[Card]:
    """The headlines of an experiment; those of language models give way to the study, if it has an answer."""
    link = Link(experiment.title, anchor(experiment.name))
    if isinstance(experiment, TinyLanguageModel) and (answer := study_card(study.stages(study.STREAMS), link)):
        return [answer]
    mine = {item.claim.id: item for item in judged if item.experiment == experiment.name}
    findings = {claim: item.finding for claim, item in mine.items() if item.finding is not None}
    plots = [exhibit for exhibit in experiment.exhibits(records) if isinstance(exhibit, Plot)]
    cards = []
    for headline in experiment.headlines:
        verdict = mine[headline.claim].verdict
        words = headline.words(findings, verdict)
        if words is not None:
            plot = plots[headline.plot] if headline.plot < len(plots) else None
            number, text = words
            cards.append(Card(number=number, text=text, badge=Badge(verdict, TONES[verdict]), link=link, plot=plot))
    return cards


def _phrase(verdict: Verdict, count: int) -> str:
    verbs = {"holds": ("holds", "hold"), "does": ("does", "do"), "not": ("is not", "are not")}
    first, _, rest = str(verdict).partition(" ")
    return " ".join(filter(None, (verbs[first][count != 1], rest)))


def _claims_section(judged: Sequence[Judged], shown: set[str]) -> Section:
    own, others = ([item for item in judged if bool(item.claim.source) == other] for other in (False, True))
    tables = [_claims_table(own, shown, "")]
    if others:
        tables.append(_claims_table(others, shown, "Claims of other papers, on their own methods"))
    return Section(title="Claims and verdicts", anchor="claims", exhibits=tables)


def _claims_table(judged: Sequence[Judged], shown: set[str], title: str) -> Table:
    rows = [
        (
            Badge(item.verdict, TONES[item.verdict]),
            item.claim.statement,
            item.claim.where,
            item.claim.paper,
            item.here,
            Link(item.experiment, anchor(item.experiment)) if item.experiment in shown else "",
        )
        for item in judged
    ]
    header = ("verdict", "claim", "in the paper", "its number", "here", "figure")
    anchors = [anchor("claim", item.claim.id) for item in judged]
    return Table(title=title, header=header, rows=rows, row_anchors=anchors, wordy=True, filtered=True)


def _experiment_section(experiment: Experiment, records: Sequence[Record], judged: Sequence[Judged]) -> Section:
    mine = [item for item in judged if item.experiment == experiment.name]
    table = Table(
        header=("verdict", "claim", "how it is measured", "holds if", "here"),
        rows=[
            (
                Badge(item.verdict, TONES[item.verdict]),
                Link(item.claim.statement, anchor("claim", item.claim.id)),
                item.claim.measure,
                "" if item.claim.rule is None else str(item.claim.rule),
                item.here,
            )
            for item in mine
        ],
        wordy=True,
    )
    return Section(
        title=experiment.title,
        anchor=anchor(experiment.name),
        aside=experiment.paper,
        exhibits=[*experiment.exhibits(records), *([table] if mine else [])],
    )


def _judge_section(judgement: Judgement) -> Section:
    claims = Table(
        title="Claims of the paper",
        header=("claim", "in the paper", "its number"),
        rows=[
            (Link(claim.statement, anchor("claim", claim.id)), claim.where, claim.paper) for claim in StoryScores.claims
        ],
        wordy=True,
        caption="These claims get no verdict: that would take the paper's judges, prompts and openings.",
    )
    section = judge_page.judge_section(judgement)
    return replace(section, exhibits=[*section.exhibits, claims])


def _failures(errors: Sequence[str]) -> Section:
    return Section(
        title="Runs that failed",
        anchor="failures",
        paragraphs=["These runs ended with an error, so their results are missing below."],
        exhibits=[Text(text=error) for error in errors],
    )


def _provenance(experiments: Sequence[Experiment], records: Mapping[str, Sequence[Record]], scale: Scale) -> Section:
    rows = [
        _provenance_row(experiment.name, records[experiment.name])
        for experiment in experiments
        if records.get(experiment.name)
    ]
    header = ("experiment", "runs", "seeds", "seconds", "commit", "sources", "device", "versions")
    table = Table(
        header=header,
        rows=rows,
        wordy=True,
        caption="Seconds: sum over runs. Sources: hash of the code that the numbers depend on. A + after a commit "
        "means that there were uncommitted changes.",
    )
    command = f"gomhc reproduce --scale {scale}"
    return Section(
        title="Provenance",
        anchor="provenance",
        paragraphs=[f"“{command}” wrote this page. To run one experiment again, use “{command} --only NAME”."],
        exhibits=[table],
    )


def _provenance_row(name: str, records: Sequence[Record]) -> tuple[Any, ...]:
    def all_of(values: Any) -> str:
        return ", ".join(sorted({str(value) for value in values}))

    seeds = sorted({record.seed for record in records if record.seed is not None})
    return (
        Link(name, anchor(name)),
        len(records),
        f"{seeds[0]}…{seeds[-1]}" if len(seeds) > 3 else ", ".join(map(str, seeds)),
        round(sum(record.wall_time for record in records), 1),
        all_of(record.commit or "none" for record in records),
        all_of(record.code_version for record in records),
        all_of(record.device for record in records),
        all_of(", ".join(f"{key} {value}" for key, value in record.versions.items()) for record in records),
    )
