"""Statistics of ratings, in which missing values are nan: means, agreement of raters, and paired differences.

n = subjects (stories), k = raters (trials or judges)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and its standard error.

    Args:
        mean: mean of the values that are not missing; nan if there are none.
        standard_error: sample standard deviation / sqrt(count); nan if there are fewer than two values.
        count: number of values that are not missing.

    Example::

        >>> gomhc.statistics.mean_and_error([1.0, 2.0, 3.0]).count
        3
    """

    mean: float
    """Mean of the values that are not missing; nan if there are none."""
    standard_error: float
    """Sample standard deviation / sqrt(count); nan if there are fewer than two values."""
    count: int
    """Number of values that are not missing."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The mean difference of two paired samples and its confidence interval.

    Args:
        mean: mean difference.
        low: lower end of the confidence interval.
        high: upper end of the confidence interval.
        count: number of complete pairs.

    Example::

        >>> gomhc.statistics.paired_bootstrap([2.0, 3.0], [1.0, 2.0]).mean
        1.0
    """

    mean: float
    """Mean difference."""
    low: float
    """Lower end of the confidence interval."""
    high: float
    """Upper end of the confidence interval."""
    count: int
    """Number of complete pairs."""


def mean_and_error(sample: ArrayLike) -> Estimate:
    """Return mean and standard error of a sample, without its missing values (nan).

    Args:
        sample: one-dimensional.

    Example::

        >>> gomhc.statistics.mean_and_error([1.0, 2.0, 3.0]).mean
        2.0
    """
    vector = _vector(sample)
    present = vector[~np.isnan(vector)]
    return Estimate(
        mean=float(present.mean()) if present.size > 0 else np.nan,
        standard_error=float(present.std(ddof=1) / np.sqrt(present.size)) if present.size > 1 else np.nan,
        count=present.size,
    )


def icc3(ratings: ArrayLike) -> float:
    r"""Return ICC(3,1) of a table of n subjects x k raters: consistency of single ratings by fixed raters.

        ICC(3,1) = (MS_subjects - MS_error) / (MS_subjects + (k - 1) MS_error)

    of the two-way analysis of variance (Shrout & Fleiss, 1979). A constant difference between raters does not lower
    it. Subjects with a missing rating (nan) are left out, as with pingouin's `nan_policy="omit"`. The result is nan if
    fewer than two subjects are left, or if nothing varies.

    Args:
        ratings: a row for each subject, a column for each rater.

    Example::

        >>> gomhc.statistics.icc3([[1, 2], [2, 3], [3, 4]])
        1.0
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
    """Return ICC(3,1) of two judges as raters of the same subjects; pairs with a missing score (nan) are left out.

    Args:
        first: the scores of one judge.
        second: the scores of the other.

    Example::

        >>> gomhc.statistics.cross_icc3([1, 2, 3], [2, 3, 4])
        1.0
    """
    return icc3(np.stack(_complete_pairs(first, second), axis=1))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's rank correlation, with mean ranks for ties.

    Pairs with a missing value (nan) are left out. The result is nan if fewer than two pairs are left, or if either side
    is constant. Needs scipy.

    Args:
        first: one-dimensional.
        second: as long.

    Example::

        >>> gomhc.statistics.spearman([1, 2, 3], [1, 3, 2])
        0.5
    """
    a, b = _complete_pairs(first, second)
    if a.size < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:  # scipy warns of these
        return np.nan
    return float(_scipy_stats().spearmanr(a, b).statistic)


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, num_resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """Return the mean of first - second with its percentile bootstrap interval over pairs.

    Pairs with a missing value (nan) are left out. The interval is nan if fewer than two pairs are left. Needs scipy.

    Args:
        first: one-dimensional.
        second: as long; what belongs to the same subject stands at the same place.
        num_resamples: how often the pairs are drawn again.
        confidence: confidence level of the interval, between 0 and 1.
        seed: the same seed gives the same interval.

    Example::

        >>> gomhc.statistics.paired_bootstrap([2.0, 3.0], [1.0, 2.0]).count
        2
    """
    _require_confidence(confidence)
    a, b = _complete_pairs(first, second)
    differences = a - b
    mean = float(differences.mean()) if differences.size > 0 else np.nan
    if differences.size < 2:
        return Difference(mean=mean, low=np.nan, high=np.nan, count=differences.size)
    bootstrap = _scipy_stats().bootstrap(
        (differences,), np.mean, n_resamples=num_resamples, confidence_level=confidence, method="percentile", rng=seed
    )
    low, high = bootstrap.confidence_interval
    return Difference(mean=mean, low=float(low), high=float(high), count=differences.size)


def paired_t(first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95) -> Difference:
    """Return the mean of first - second with the interval of Student's t over pairs.

    The interval for a handful of pairs: a bootstrap of few pairs is too narrow. It takes differences to be normal.
    Pairs with a missing value (nan) are left out. The interval is nan if fewer than two pairs are left. Needs scipy.

    Args:
        first: one-dimensional.
        second: as long; what belongs to the same subject stands at the same place.
        confidence: confidence level of the interval, between 0 and 1.

    Example::

        >>> gomhc.statistics.paired_t([2.0, 3.0, 4.0], [1.0, 2.0, 2.0]).count
        3
    """
    _require_confidence(confidence)
    a, b = _complete_pairs(first, second)
    estimate = mean_and_error(a - b)
    if estimate.count < 2:
        return Difference(mean=estimate.mean, low=np.nan, high=np.nan, count=estimate.count)
    half = float(_scipy_stats().t.ppf((1 + confidence) / 2, estimate.count - 1)) * estimate.standard_error
    return Difference(mean=estimate.mean, low=estimate.mean - half, high=estimate.mean + half, count=estimate.count)


def _scipy_stats() -> ModuleType:
    """Import scipy.stats late, because `import gomhc` must not need it."""
    try:
        import scipy.stats
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this statistic needs scipy; install it with: pip install 'gomhc[report]'", name=error.name
        ) from None
    return scipy.stats


def _require_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, as in 0.95; got {confidence!r}")


def _vector(sample: ArrayLike) -> Array:
    vector = np.asarray(sample, dtype=float)
    if vector.ndim != 1:
        raise ValueError(f"samples must be one-dimensional, got shape {vector.shape}")
    return vector


def _complete_pairs(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    """Return both sides without the pairs in which a value is missing."""
    a, b = _vector(first), _vector(second)
    if a.size != b.size:
        raise ValueError(f"both sides must have a value for each subject, got {a.size} and {b.size}")
    complete = ~(np.isnan(a) | np.isnan(b))
    return a[complete], b[complete]


def _ratio(numerator: float, denominator: float, *, scale: Array) -> float:
    """Return the ratio of two mean squares; nan if they are rounding errors of a table that does not vary."""
    rounding = (np.finfo(float).eps * scale.size * np.abs(scale).max()) ** 2
    return numerator / denominator if denominator > rounding else np.nan
