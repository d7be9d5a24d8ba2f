"""Do raters agree, and do models differ? Statistics of ratings, with cells that may be missing (nan).

n = subjects (stories), k = raters (trials or judges)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and how sure it is."""

    mean: float
    """Over what is there; nan of nothing."""
    standard_error: float
    """Sample standard deviation / sqrt(count); nan of fewer than two."""
    count: int
    """How many there were, without the missing."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much larger one of two paired samples is."""

    mean: float
    """Of the differences."""
    low: float
    """Lower end of its confidence interval."""
    high: float
    """Upper end of its confidence interval."""
    count: int
    """How many pairs there were, without those of which either is missing."""


def mean_and_error(values: ArrayLike) -> Estimate:
    """Mean and standard error of what is there; missing values (nan) are left out."""
    found = _vector(values)
    found = found[~np.isnan(found)]
    return Estimate(
        mean=float(found.mean()) if found.size > 0 else np.nan,
        standard_error=float(found.std(ddof=1) / np.sqrt(found.size)) if found.size > 1 else np.nan,
        count=found.size,
    )


def icc3(ratings: ArrayLike) -> float:
    r"""ICC(3,1) of a table of n subjects x k raters: consistency of single ratings by fixed raters.

        ICC(3,1) = (MS_subjects - MS_error) / (MS_subjects + (k - 1) MS_error)

    of the two-way analysis of variance (Shrout & Fleiss, 1979). A rater who is stricter by a constant does not lower
    it. Subjects with a missing cell (nan) are left out whole, as pingouin's `nan_policy="omit"` does. It is nan if
    fewer than two subjects are left, or if nothing varies.
    """
    table = np.asarray(ratings, dtype=float)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(f"ratings must be a table of subjects x at least two raters, got shape {table.shape}")
    table = table[~np.isnan(table).any(axis=1)]
    n, k = table.shape
    if n < 2:
        return np.nan
    by_subject, by_rater = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    residual = table - by_subject - by_rater + table.mean()
    ms_subjects = k * (by_subject - table.mean()).var() * n / (n - 1)
    ms_error = (residual**2).sum() / ((n - 1) * (k - 1))
    return float(_ratio(ms_subjects - ms_error, ms_subjects + (k - 1) * ms_error, scale=table))


def cross_icc3(first: ArrayLike, second: ArrayLike) -> float:
    """ICC(3,1) of two judges as raters of the same subjects; pairs with a missing score (nan) are left out."""
    return icc3(np.stack(_pairs(first, second), axis=1))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rho: the correlation of ranks; equal values share the mean of their ranks.

    Pairs of which either is missing (nan) are left out, as scipy's `nan_policy="omit"` does. It is nan if fewer than
    two pairs are left, or if either side is constant.
    """
    a, b = _pairs(first, second)
    if a.size < 2:
        return np.nan
    a, b = _ranks(a) - (a.size + 1) / 2, _ranks(b) - (b.size + 1) / 2
    norms = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norms) if norms > 0 else np.nan


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, num_resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """The mean of first - second with its percentile bootstrap interval; whole pairs are drawn.

    Pairs of which either is missing (nan) are left out; of fewer than two, the interval is nan.
    """
    a, b = _pairs(first, second)
    differences = a - b
    n = differences.size
    if n < 2:
        return Difference(mean=float(differences[0]) if n == 1 else np.nan, low=np.nan, high=np.nan, count=n)
    drawn = np.random.default_rng(seed).integers(0, n, (num_resamples, n))
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences[drawn].mean(axis=1), (tail, 1 - tail))
    return Difference(mean=float(differences.mean()), low=float(low), high=float(high), count=n)


def _vector(values: ArrayLike) -> Array:
    vector = np.asarray(values, dtype=float)
    if vector.ndim != 1:
        raise ValueError(f"values must be one-dimensional, got shape {vector.shape}")
    return vector


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    """Both sides of the pairs that are complete."""
    a, b = _vector(first), _vector(second)
    if a.size != b.size:
        raise ValueError(f"both sides must have a value for each subject, got {a.size} and {b.size}")
    complete = ~(np.isnan(a) | np.isnan(b))
    return a[complete], b[complete]


def _ranks(values: Array) -> Array:
    """1 for the smallest; equal values share the mean of the ranks that they take up."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _ratio(numerator: float, denominator: float, *, scale: Array) -> float:
    """The ratio of two mean squares; nan where they are nothing but the rounding of a table that does not vary."""
    rounding = (np.finfo(float).eps * scale.size * np.abs(scale).max()) ** 2
    return numerator / denominator if denominator > rounding else np.nan
