"""What do the scores say? Means, reliability, agreement of judges, and differences between models.

j = judge, m = model, o = opening, t = trial, c = criterion
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gomhc.lab.files import read, seal, unseal
from gomhc.lab.judge.answers import CRITERIA
from gomhc.statistics import Difference, Estimate, cross_icc3, icc3, mean_and_error, paired_bootstrap, spearman

Mark = Literal["", "maximum", "near"]
"""`near` the maximum: within one standard error of it."""
FILE = "judge.json"
"""The name under which `gomhc judge --out` keeps it, and `gomhc reproduce` looks for it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model in the eyes of a judge."""

    model: str
    estimates: tuple[Estimate, ...]
    """For each criterion."""
    marks: tuple[Mark, ...]
    """For each criterion."""
    missing: int
    """Trials without scores."""
    trials: int
    """All trials."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Two judges on the same stories."""

    judges: tuple[str, str]
    spearman: tuple[float, ...]
    """For each criterion."""
    icc: tuple[float, ...]
    """For each criterion."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two models on the same openings, in the eyes of a judge: the first minus the second."""

    models: tuple[str, str]
    differences: tuple[Difference, ...]
    """For each criterion."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """All scores of all judges on all models."""

    judges: tuple[str, ...]
    models: tuple[str, ...]
    openings: tuple[str, ...]
    scores: NDArray[np.float64]
    """(j, m, o, t, c); nan where there are none."""
    written: NDArray[np.bool_]
    """(m, o): whether this model has a story with this opening."""
    reasons: tuple[dict[str, int], ...]
    """For each judge, how often scores are missing for which reason."""

    def __post_init__(self) -> None:
        sizes = len(self.judges), len(self.models), len(self.openings)
        expected = (*sizes, *self.scores.shape[3:4], len(CRITERIA))
        if self.scores.shape != expected or self.scores.size == 0:
            raise ValueError(f"scores (judge, model, opening, trial, criterion) of {sizes} are {self.scores.shape}")
        if self.written.shape != sizes[1:] or len(self.reasons) != sizes[0]:
            raise ValueError(f"written and reasons are of other sizes than {sizes} judges, models and openings")
        if not (np.isnan(self.scores) | ((self.scores >= 1) & (self.scores <= 10))).all():
            raise ValueError("scores are from 1 to 10")

    @property
    def trials(self) -> int:
        """How often each judge was asked about each story."""
        return self.scores.shape[3]

    @property
    def consensus(self) -> NDArray[np.float64]:
        """(j, m, o, c): the mean over the trials that have scores; nan if none has."""
        there = ~np.isnan(self.scores)
        totals, counts = np.where(there, self.scores, 0).sum(axis=3), there.sum(axis=3)
        return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)

    def rows(self, judge: int) -> list[Row]:
        """Mean and standard error of every model by every criterion."""
        table = [[mean_and_error(scores) for scores in model.T] for model in self.consensus[judge]]
        by_criterion = [marks([row[c] for row in table]) for c in range(len(CRITERIA))]
        return [
            Row(
                model=model,
                estimates=tuple(table[m]),
                marks=tuple(column[m] for column in by_criterion),
                missing=int(np.isnan(self.scores[judge, m, self.written[m], :, 0]).sum()),
                trials=int(self.written[m].sum()) * self.trials,
            )
            for m, model in enumerate(self.models)
        ]

    def reliability(self, judge: int) -> tuple[float, ...]:
        """ICC(3,1) of the judge's trials for each criterion, over the stories of all models; nan of one trial."""
        if self.trials < 2:
            return (np.nan,) * len(CRITERIA)
        trials = self.scores[judge].reshape(-1, self.trials, len(CRITERIA))
        return tuple(icc3(trials[..., c]) for c in range(len(CRITERIA)))

    def agreements(self) -> Iterator[Agreement]:
        """How any two judges agree on the consensus scores, over the stories of all models."""
        flat = self.consensus.reshape(len(self.judges), -1, len(CRITERIA))
        for a, b in combinations(range(len(self.judges)), 2):
            pairs = list(zip(flat[a].T, flat[b].T, strict=True))
            yield Agreement(
                judges=(self.judges[a], self.judges[b]),
                spearman=tuple(spearman(*pair) for pair in pairs),
                icc=tuple(cross_icc3(*pair) for pair in pairs),
            )

    def comparisons(self, judge: int) -> Iterator[Comparison]:
        """How any two models differ on the same openings, with 95 % intervals by bootstrap over openings."""
        consensus = self.consensus[judge]
        for a, b in combinations(range(len(self.models)), 2):
            pairs = zip(consensus[a].T, consensus[b].T, strict=True)
            yield Comparison(
                models=(self.models[a], self.models[b]), differences=tuple(paired_bootstrap(*pair) for pair in pairs)
            )

    def to_json(self) -> str:
        """All of it; `null` where scores are missing."""
        scores = np.where(np.isnan(self.scores), None, self.scores).tolist()  # type: ignore[call-overload]
        return seal({"criteria": CRITERIA, **vars(self), "scores": scores, "written": self.written.tolist()}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Judgement:
        """What `to_json` wrote."""
        try:
            found = unseal(text.encode() if isinstance(text, str) else text)
            if tuple(found["criteria"]) != CRITERIA:
                raise ValueError(f"no scores of {', '.join(CRITERIA)}")
            if not all(isinstance(reasons, dict) for reasons in found["reasons"]):
                raise ValueError("reasons are no counts by name")
            names = {name: tuple(map(str, found[name])) for name in ("judges", "models", "openings")}
            scores, written = np.array(found["scores"], dtype=float), np.array(found["written"], dtype=bool)
            return cls(**names, scores=scores, written=written, reasons=tuple(found["reasons"]))
        except KeyError as error:
            raise ValueError(f"this is no judgement that gomhc judge wrote: there is no {error}") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"this is no judgement that gomhc judge wrote: {error}") from None

    @classmethod
    def load(cls, file: Path) -> Judgement:
        """What `gomhc judge --out` wrote to this file."""
        try:
            return cls.from_json(read(file))
        except ValueError as error:
            raise ValueError(f"{file}: {error}; gomhc judge --out {file.parent} writes it, or move it away") from None


def marks(estimates: Sequence[Estimate]) -> list[Mark]:
    """The maximum, and what is less than one standard error of the maximum away from it."""
    means = np.array([estimate.mean for estimate in estimates])
    if np.isnan(means).all():
        return [""] * len(means)
    best = int(np.nanargmax(means))
    lowest = means[best] - estimates[best].standard_error
    return ["maximum" if mean == means[best] else "near" if mean >= lowest else "" for mean in means]
