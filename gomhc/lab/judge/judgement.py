"""All scores, and their statistics: means, reliability, agreement of judges, and differences between models.

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
"""`near`: within one standard error of the maximum."""
FILE = "judge.json"
"""Name of the file that `gomhc judge --out` writes and `gomhc reproduce` reads."""


@dataclass(frozen=True, kw_only=True)
class ModelScores:
    """The scores of one judge for one model."""

    model: str
    estimates: tuple[Estimate, ...]
    """Mean and standard error for each criterion."""
    marks: tuple[Mark, ...]
    """Whether the mean is the maximum over models, or near it, for each criterion."""
    missing: int
    """Number of trials without scores."""
    trials: int
    """Number of all trials."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of two judges on the same stories."""

    judges: tuple[str, str]
    spearman: tuple[float, ...]
    """Spearman's rho for each criterion."""
    icc: tuple[float, ...]
    """ICC(3,1) for each criterion."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Scores of one judge for the first model minus those for the second, on the same openings."""

    models: tuple[str, str]
    differences: tuple[Difference, ...]
    """Mean difference and its interval for each criterion."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A model's place in the ranking of one judge, by its mean over all criteria."""

    model: str
    estimate: Estimate
    """Mean and standard error over openings."""
    behind: Difference | None
    """The first model's scores minus this one's, on the same openings; None for the first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """The scores of all judges for all models."""

    judges: tuple[str, ...]
    models: tuple[str, ...]
    openings: tuple[str, ...]
    scores: NDArray[np.float64]
    """(j, m, o, t, c); nan where a score is missing."""
    written: NDArray[np.bool_]
    """(m, o): whether the model has a story with this opening."""
    reasons: tuple[dict[str, int], ...]
    """For each judge: reason -> number of trials without scores for this reason."""

    def __post_init__(self) -> None:
        sizes = len(self.judges), len(self.models), len(self.openings)
        expected = (*sizes, *self.scores.shape[3:4], len(CRITERIA))
        if self.scores.shape != expected or self.scores.size == 0:
            raise ValueError(
                f"scores must be (judges, models, openings, trials, criteria) = {expected}, got {self.scores.shape}"
            )
        if self.written.shape != sizes[1:] or len(self.reasons) != sizes[0]:
            raise ValueError(
                f"written and reasons must fit {sizes} judges, models and openings, got {self.written.shape} and "
                f"{len(self.reasons)}"
            )
        if not (np.isnan(self.scores) | ((self.scores >= 1) & (self.scores <= 10))).all():
            raise ValueError("scores must be from 1 to 10, or missing")

    @property
    def trials(self) -> int:
        """Number of trials of each judge on each story."""
        return self.scores.shape[3]

    @property
    def consensus(self) -> NDArray[np.float64]:
        """(j, m, o, c): the mean over the trials that have scores; nan if none has."""
        present = ~np.isnan(self.scores)
        totals, counts = np.where(present, self.scores, 0).sum(axis=3), present.sum(axis=3)
        return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)

    def model_scores(self, judge: int) -> list[ModelScores]:
        """Return mean and standard error for every model and criterion."""
        table = [[mean_and_error(scores) for scores in model.T] for model in self.consensus[judge]]
        by_criterion = [marks([row[c] for row in table]) for c in range(len(CRITERIA))]
        return [
            ModelScores(
                model=model,
                estimates=tuple(table[m]),
                marks=tuple(column[m] for column in by_criterion),
                missing=int(np.isnan(self.scores[judge, m, self.written[m], :, 0]).sum()),
                trials=int(self.written[m].sum()) * self.trials,
            )
            for m, model in enumerate(self.models)
        ]

    def reliability(self, judge: int) -> tuple[float, ...]:
        """Return ICC(3,1) of the judge's trials for each criterion, over all stories; nan if there is one trial."""
        if self.trials < 2:
            return (np.nan,) * len(CRITERIA)
        trials = self.scores[judge].reshape(-1, self.trials, len(CRITERIA))
        return tuple(icc3(trials[..., c]) for c in range(len(CRITERIA)))

    def agreements(self) -> Iterator[Agreement]:
        """Yield the agreement of every two judges on the consensus scores of all stories."""
        flat = self.consensus.reshape(len(self.judges), -1, len(CRITERIA))
        for a, b in combinations(range(len(self.judges)), 2):
            pairs = list(zip(flat[a].T, flat[b].T, strict=True))
            yield Agreement(
                judges=(self.judges[a], self.judges[b]),
                spearman=tuple(spearman(*pair) for pair in pairs),
                icc=tuple(cross_icc3(*pair) for pair in pairs),
            )

    def comparisons(self, judge: int) -> Iterator[Comparison]:
        """Yield the differences of every two models, with 95 % bootstrap intervals over openings."""
        consensus = self.consensus[judge]
        for a, b in combinations(range(len(self.models)), 2):
            pairs = zip(consensus[a].T, consensus[b].T, strict=True)
            yield Comparison(
                models=(self.models[a], self.models[b]), differences=tuple(paired_bootstrap(*pair) for pair in pairs)
            )

    def ranking(self, judge: int) -> list[Ranked]:
        """Return the models that have scores, the best first, each with how far it is behind the first."""
        overall = self.consensus[judge].mean(axis=-1)
        estimates = [mean_and_error(scores) for scores in overall]
        places = [m for m, estimate in enumerate(estimates) if not np.isnan(estimate.mean)]
        places.sort(key=lambda m: -estimates[m].mean)
        return [
            Ranked(
                model=self.models[m],
                estimate=estimates[m],
                behind=None if m == places[0] else paired_bootstrap(overall[places[0]], overall[m]),
            )
            for m in places
        ]

    def to_json(self) -> str:
        """Return everything as sealed JSON, with `null` for missing scores."""
        scores = np.where(np.isnan(self.scores), None, self.scores).tolist()  # type: ignore[call-overload]
        return seal({"criteria": CRITERIA, **vars(self), "scores": scores, "written": self.written.tolist()}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Judgement:
        """Read what `to_json` returned."""
        try:
            content = unseal(text.encode() if isinstance(text, str) else text)
            if tuple(content["criteria"]) != CRITERIA:
                raise ValueError(f"expected scores of {', '.join(CRITERIA)}, got {content['criteria']}")
            if not all(isinstance(reasons, dict) for reasons in content["reasons"]):
                raise ValueError("expected reasons as objects of counts")
            names = {name: tuple(map(str, content[name])) for name in ("judges", "models", "openings")}
            scores, written = np.array(content["scores"], dtype=float), np.array(content["written"], dtype=bool)
            return cls(**names, scores=scores, written=written, reasons=tuple(content["reasons"]))
        except KeyError as error:
            raise ValueError(f"this is not a judgement that gomhc judge wrote: {error} is missing") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"this is not a judgement that gomhc judge wrote: {error}") from None

    @classmethod
    def load(cls, file: Path) -> Judgement:
        """Read the file that `gomhc judge --out` wrote."""
        try:
            return cls.from_json(read(file))
        except ValueError as error:
            raise ValueError(
                f"{file}: {error}; write it again with gomhc judge --out {file.parent}, or move it away"
            ) from None


def marks(estimates: Sequence[Estimate]) -> list[Mark]:
    """Mark the maximum, and means within the maximum's standard error of it."""
    means = np.array([estimate.mean for estimate in estimates])
    if np.isnan(means).all():
        return [""] * len(means)
    best = int(np.nanargmax(means))
    lowest = means[best] - estimates[best].standard_error
    return ["maximum" if mean == means[best] else "near" if mean >= lowest else "" for mean in means]
