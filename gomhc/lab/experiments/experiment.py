"""What an experiment is: runs that yield records, claims of the paper, what the records say of them, and figures.

An experiment is one file in this folder, or one that GOMHC_PLUGINS lists (see `gomhc.lab.plugins`). It holds a `Run`,
which measures, and an `Experiment`, which has everything else; the command line, the claims and the page find it there.
Records are repeated when the code that measures changes, and the class derived from `Experiment` is not part of that:
keep claims, findings and drawing inside of it.
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
    """One measurement: its fields, which JSON can hold (numbers, text, lists), and how it is made.

    A run draws all its random numbers from a seed that is among its fields.
    """

    @abstractmethod
    def execute(self) -> dict[str, Any]:
        """Measure: numbers, text, and nested lists and dictionaries of them (arrays by `.tolist()`)."""

    @property
    def alone(self) -> bool:
        """Whether nothing else may run meanwhile, because time is measured or the run needs the whole machine."""
        return False

    @property
    def num_threads(self) -> int | None:
        """Threads that torch may use; None: its share of the cores."""
        return None

    @property
    def full_size(self) -> bool:
        """Whether these are the paper's sizes."""
        return True

    @property
    def cost(self) -> float:
        """Approximate core seconds: the costliest runs go first, and the time left is estimated from it."""
        return 1.0

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields, as a record keeps them."""
        return asdict(self)


class Experiment(ABC):
    """One figure, table or section of the paper, or a question beyond it."""

    name: ClassVar[str]
    """Short name, as on the command line: `fig6`."""
    title: ClassVar[str]
    """Heading of its section."""
    paper: ClassVar[str]
    """What the paper says about it, in our words, with the number of its figure, table or section."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    """The paper's statements that it decides."""
    headlines: ClassVar[tuple[Headline, ...]] = ()
    """Findings that open the page."""
    order: ClassVar[int] = 1000
    """Where its section stands on the page: lower first. The paper's own sections have less than 1000."""

    @abstractmethod
    def runs(self, scale: Scale) -> Sequence[Run]:
        """Return the runs of this scale; runs that two scales share are run once."""

    @abstractmethod
    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        """Return id of a claim -> what the records say about it, without claims that they cannot decide."""

    def exhibits(self, records: Sequence[Record]) -> Sequence[Exhibit]:
        """Return plots and tables of the records. Import matplotlib where a plot is drawn: verdicts do not need it."""
        return ()
