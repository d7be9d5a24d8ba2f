"""Claims of the paper, and the rules by which they are judged.

An experiment turns its records into a `Finding`, a number and its words; the claim's `Rule` compares the number. No
verdict is ever written down: the rule gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of checking a claim."""

    HOLDS = "holds"
    HOLDS_AT_REDUCED_SCALE = "holds at reduced scale"
    DOES_NOT_HOLD = "does not hold"
    NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Finding:
    """What the records say about a claim: the number that the rule judges, and a text for the page."""

    value: float | None
    """The number; None if the records are too small to decide, which the text then says."""
    text: str
    full_size: bool | None = None
    """Whether it was measured at the paper's sizes; None to take this from the records of the experiment."""
    interval: tuple[float, float] | None = None
    """95 % interval of the value over seeds; the claim is then decided only if the interval does not cross a limit."""


@dataclass(frozen=True)
class Rule:
    """Holds if `at_least <= value <= at_most`."""

    at_least: float = -math.inf
    at_most: float = math.inf

    def allows(self, value: float) -> bool:
        """Return whether the claim holds with this number; it never holds with nan."""
        return self.at_least <= value <= self.at_most

    def decides(self, interval: tuple[float, float]) -> bool:
        """Return whether the whole interval meets the rule, or no part of it does."""
        low, high = interval
        return (self.allows(low) and self.allows(high)) or high < self.at_least or low > self.at_most

    def __str__(self) -> str:
        if self.at_least == self.at_most:
            return f"= {self.at_least:g}"
        if self.at_least == -math.inf:
            return f"≤ {self.at_most:g}"
        if self.at_most == math.inf:
            return f"≥ {self.at_least:g}"
        return f"{self.at_least:g} to {self.at_most:g}"


TRUE = Rule(1, 1)
"""The rule of a yes (1) or no (0) question."""


@dataclass(frozen=True)
class Claim:
    """A quantitative statement of the paper, or of another, and how it is judged here."""

    id: str
    where: str
    """Figure, table, section or appendix."""
    paper: str
    """The paper's number, as printed."""
    statement: str
    """What is claimed, in our own words."""
    measure: str
    """How the number that the rule judges is measured; without a rule, why it is not measured here."""
    rule: Rule | None
    """The values for which the claim holds."""
    source: str = ""
    """Method whose paper states the claim, or empty for go-mHC's. Claims of other papers are counted separately."""

    def verdict(self, finding: Finding | None, full_size: bool) -> Verdict:
        """Judge the finding, if there is one."""
        if finding is None or finding.value is None or self.rule is None:
            return Verdict.NOT_MEASURED
        if finding.interval is not None and not self.rule.decides(finding.interval):
            return Verdict.NOT_MEASURED
        if not self.rule.allows(finding.value):
            return Verdict.DOES_NOT_HOLD
        large = full_size if finding.full_size is None else finding.full_size
        return Verdict.HOLDS if large else Verdict.HOLDS_AT_REDUCED_SCALE


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A finding that a reader of the page should know first, in words for either outcome.

    Words are format strings: {0} is the value found for the claim, {1} and on are those of the claims beside it, and
    {text} is what was found for the claim in words.
    """

    rank: int
    """Position among the headlines, lowest first."""
    claim: str
    """Id of the claim whose verdict the headline gives."""
    number: str
    """The number that is shown in large letters."""
    holds: str
    """One or two sentences for the case that the claim holds, at any scale."""
    fails: str
    """One or two sentences for the case that it does not hold."""
    beside: tuple[str, ...] = ()
    """Ids of other claims whose values the sentences use."""
    plot: int = 0
    """Index of the experiment's plot that is shown next to it."""

    def words(self, findings: Mapping[str, Finding], verdict: Verdict) -> tuple[str, str] | None:
        """Return number and sentences; None if the claim is not decided or a value is missing."""
        found = [findings[claim].value for claim in (self.claim, *self.beside) if claim in findings]
        if verdict is Verdict.NOT_MEASURED or None in found or len(found) <= len(self.beside):
            return None
        text = self.fails if verdict is Verdict.DOES_NOT_HOLD else self.holds
        said = findings[self.claim].text
        number, sentences = (words.format(*found, text=said) for words in (self.number, text))
        return number, sentences
