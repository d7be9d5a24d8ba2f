"""What is an experiment? Runs that yield records, and what the records say of the paper's claims.

Add one: a file `gomhc/lab/experiments/<name>.py` with a `Run` and an `Experiment`, a line in
`gomhc/lab/experiments/registry.py`, its claims in `gomhc/lab/results/claims.py`, and its drawing in
`gomhc/lab/report/figures/<name>.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record

Scale = Literal["quick", "laptop", "paper"]
Sizes = dict[str, Any]
"""Fields of a run that depend on the scale."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """What is measured at once, by itself: fields that JSON has (numbers, strings, lists), and how it is done.

    A run draws all its random numbers from a seed that is among its fields.
    """

    @abstractmethod
    def execute(self) -> dict[str, Any]:
        """Measure: numbers, strings, and nested lists and dictionaries of them (arrays by `.tolist()`)."""

    @property
    def alone(self) -> bool:
        """Whether nothing else may run meanwhile, as where time is measured or one run takes the machine."""
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
        """About how many seconds of a core; the costly go first, and the time left is told by it."""
        return 1.0

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields, as a record keeps them."""
        return asdict(self)


class Experiment(ABC):
    """One figure, table or section of the paper."""

    name: ClassVar[str]
    """Short, as on the command line: `fig6`."""
    title: ClassVar[str]
    """A heading."""
    paper: ClassVar[str]
    """What the paper says of it, in our words, with the number of its figure, table or section."""

    @abstractmethod
    def runs(self, scale: Scale) -> Sequence[Run]:
        """What to run at this scale; runs that two scales share are run once."""

    @abstractmethod
    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        """Id of a claim -> what the records say of it; a claim that they cannot decide is left out."""
