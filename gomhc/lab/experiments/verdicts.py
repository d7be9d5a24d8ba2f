"""The verdict on every claim, from the records of the experiments; no figure is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gomhc.lab.experiments.experiment import Experiment
from gomhc.lab.results.claim import Claim, Finding, Verdict
from gomhc.lab.results.record import Record


@dataclass(frozen=True)
class Judged:
    """A claim of an experiment, and what its records say of it."""

    experiment: str
    claim: Claim
    finding: Finding | None
    verdict: Verdict

    @property
    def here(self) -> str:
        """What was measured, in words, or why nothing was."""
        if self.finding is not None:
            return self.finding.text
        return self.claim.measure if self.claim.rule is None else "no record decides it"

    def as_json(self) -> dict[str, Any]:
        """One object of claims.json."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "where": self.claim.where,
            "paper": self.claim.paper,
            "source": self.claim.source,
            "measure": self.claim.measure,
            "rule": None if self.claim.rule is None else str(self.claim.rule),
            "here": self.here,
            "value": None if self.finding is None else self.finding.value,
            "verdict": str(self.verdict),
        }


def judge(experiments: Sequence[Experiment], records: Mapping[str, Sequence[Record]]) -> list[Judged]:
    """The verdict on every claim; without records a claim is not measured."""
    return [judged for experiment in experiments for judged in _judge(experiment, records.get(experiment.name, ()))]


def _judge(experiment: Experiment, records: Sequence[Record]) -> list[Judged]:
    findings = experiment.findings(records) if records else {}
    full_size = all(record.full_size for record in records)
    if unknown := findings.keys() - {claim.id for claim in experiment.claims}:
        raise ValueError(
            f"{experiment.name} has findings for {', '.join(sorted(unknown))}, but its claims have no such id; "
            f"correct the ids"
        )

    def judged(claim: Claim) -> Judged:
        finding = findings.get(claim.id)
        return Judged(experiment.name, claim, finding, claim.verdict(finding, full_size))

    return [judged(claim) for claim in experiment.claims]
