"""Base classes of experiments: runs that write records, claims of the paper, findings from the records, and figures.

An experiment is one file in this folder, or one that GOMHC_PLUGINS lists (see `gomhc.lab.plugins`). It has a `Run`,
which measures, and an `Experiment`, which has everything else. Runs are repeated if the code that measures changes. The
subclass of `Experiment` does not count as such code, so keep claims, findings and drawing inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.results.claim import Claim, Finding, Headline
from gomhc.lab.results.record import Record

Scale = Literal["quick", "laptop", "paper"]
Sizes = dict[str, Any]
"""Fields of a run that depend on the scale."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """One measurement. Its fields are its configuration: numbers, text and lists, which are written as JSON.

    A run draws all its random numbers from a seed, which is one of its fields.
    """

    @abstractmethod
    def execute(self) -> dict[str, Any]:
        """Measure, and return numbers, text, and nested lists and dictionaries of them (arrays as `.tolist()`)."""

    @property
    def alone(self) -> bool:
        """Whether it must run alone, because it measures time or needs the whole machine."""
        return False

    @property
    def num_threads(self) -> int | None:
        """Number of threads that torch may use; None for an equal share of the cores."""
        return None

    @property
    def full_size(self) -> bool:
        """Whether these are the paper's sizes."""
        return True

    @property
    def cost(self) -> float:
        """Approximate core seconds. The costliest runs start first, and the time left is estimated from it."""
        return 1.0

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields, as a record stores them."""
        return asdict(self)


class Experiment(ABC):
    """One figure, table or section of the paper, or a question beyond it."""

    name: ClassVar[str]
    """Short name for the command line, such as `fig6`."""
    title: ClassVar[str]
    """Heading of its section on the page."""
    paper: ClassVar[str]
    """What the paper says about it, in our words, with the number of the figure, table or section."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    """The paper's statements that the experiment decides."""
    headlines: ClassVar[tuple[Headline, ...]] = ()
    """Findings that open the page."""
    order: ClassVar[int] = 1000
    """Position of its section on the page, lowest first. The paper's own sections have numbers below 1000."""

    @abstractmethod
    def runs(self, scale: Scale) -> Sequence[Run]:
        """Return the runs of a scale; runs that two scales share are run once."""

    @abstractmethod
    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        """Return a finding for each claim that the records can decide: id of the claim -> finding."""

    def exhibits(self, records: Sequence[Record]) -> Sequence[Exhibit]:
        """Return plots and tables of the records. Import matplotlib only where you draw: verdicts do not need it."""
        return ()
