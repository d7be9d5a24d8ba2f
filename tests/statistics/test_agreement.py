"""Statistics of ratings are those of textbooks and of pingouin, also with ties and missing cells."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas
import pytest
import scipy.stats

import gomhc
from gomhc.statistics import cross_icc3, icc3, mean_and_error, paired_bootstrap, paired_t, spearman

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pingouin

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, about pingouin 0.7

SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
"""Table 2 of Shrout & Fleiss (1979): six subjects, four raters."""


def ratings(seed, subjects=40, raters=3, missing=0.0):
    """Whole numbers from 1 to 10, with many ties, that depend on the subject."""
    rng = np.random.default_rng(seed)
    table = np.clip(np.round(5 + 2 * rng.normal(size=(subjects, 1)) + rng.normal(size=(subjects, raters))), 1, 10)
    return np.where(rng.random(table.shape) < missing, np.nan, table)


def pingouin_icc3(table):
    assert np.isfinite(table).all(axis=1).sum() > 5  # or there is nothing to compare
    subjects, raters = np.indices(table.shape)
    data = pandas.DataFrame({"subject": subjects.ravel(), "rater": raters.ravel(), "score": table.ravel()})
    found = pingouin.intraclass_corr(data, targets="subject", raters="rater", ratings="score", nan_policy="omit")
    return found.set_index("Type").loc["ICC(C,1)", "ICC"]  # ICC(3,1) by its other name


def test_icc3_of_the_published_table_is_71_hundredths():
    assert round(gomhc.statistics.icc3(SHROUT_FLEISS), 2) == 0.71


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.25])
@pytest.mark.parametrize("raters", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_icc3_equals_pingouins(seed, raters, missing):
    table = ratings(seed, raters=raters, missing=missing)
    assert icc3(table) == pytest.approx(pingouin_icc3(table), rel=1e-9, abs=1e-12)


def test_icc3_does_not_mind_a_strict_rater_but_an_erratic_one():
    table = ratings(0)
    assert icc3(table - [0, 3, 1]) == pytest.approx(icc3(table))
    assert icc3(np.repeat(table[:, :1], 3, axis=1)) == pytest.approx(1)
    assert icc3(np.column_stack((table[:, 0], np.random.default_rng(0).permutation(table[:, 1])))) < 0.4


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_spearman_is_the_correlation_of_ranks(seed, missing):
    a, b = ratings(seed, raters=2, missing=missing).T
    assert len(np.unique(a)) < len(a)  # ties
    present = np.isfinite(a + b)
    ranks = [[np.mean([np.sum(x < y) + 1, np.sum(x <= y)]) for y in x] for x in (a[present], b[present])]
    assert gomhc.statistics.spearman(a, b) == pytest.approx(np.corrcoef(*ranks)[0, 1], rel=1e-12)


def test_cross_icc_is_icc3_with_judges_as_raters():
    table = ratings(1, raters=2, missing=0.2)
    assert cross_icc3(*table.T) == pytest.approx(pingouin_icc3(table), rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_mean_and_error_equal_scipys(missing):
    values = ratings(2, missing=missing)[:, 0]
    found = mean_and_error(values)
    assert found.mean == pytest.approx(np.nanmean(values))
    assert found.standard_error == pytest.approx(float(scipy.stats.sem(values, nan_policy="omit")))
    assert found.count == np.isfinite(values).sum()


def percentile_interval(differences, num_resamples, seed):
    """The percentile bootstrap, written out: an oracle that shares no code with scipy's."""
    drawn = np.random.default_rng(seed).integers(0, len(differences), (num_resamples, len(differences)))
    return np.quantile(differences[drawn].mean(axis=1), (0.025, 0.975))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_bootstrap_interval_is_that_of_resampled_means(missing):
    a, b = ratings(3, raters=2, missing=missing).T
    found = paired_bootstrap(a, b, num_resamples=2000, seed=7)
    differences = (a - b)[np.isfinite(a - b)]
    assert (found.low, found.high) == pytest.approx(tuple(percentile_interval(differences, 2000, seed=7)))
    assert found.mean == pytest.approx(differences.mean())
    assert found.count == len(differences)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, -1.0, float("nan")])
@pytest.mark.parametrize("interval", [paired_t, paired_bootstrap])
def test_confidence_lies_between_0_and_1(interval, confidence):
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        interval([1.0, 2.0], [0.0, 0.5], confidence=confidence)


def test_t_interval_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 6))
    a[2] = np.nan
    found = paired_t(a, b, confidence=0.9)
    kept = ~np.isnan(a)
    oracle = scipy.stats.ttest_rel(a[kept], b[kept]).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.count == 5


def test_t_interval_of_five_pairs_holds_the_truth_as_often_as_it_says_and_the_bootstrap_less():
    rng = np.random.default_rng(0)
    trials = 400
    hits = np.zeros(2)
    for seed in range(trials):
        a = rng.normal(0.5, 1, 5)
        found = paired_t(a, np.zeros(5)), paired_bootstrap(a, np.zeros(5), num_resamples=200, seed=seed)
        hits += [one.low <= 0.5 <= one.high for one in found]
    assert 0.90 < hits[0] / trials < 0.99  # 95 % within four standard errors
    assert hits[1] < hits[0] - 20


def test_bootstrap_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(300):
        a, b = rng.normal(0.5, 1, 70), rng.normal(0, 1, 70)
        found = paired_bootstrap(a, b, num_resamples=500, seed=seed)
        hits += found.low <= 0.5 <= found.high
    assert 0.90 < hits / 300 < 0.99  # 95 % within four standard errors


def test_what_cannot_be_told_is_nan():
    nothing = [np.nan, np.nan, np.nan]
    assert np.isnan(icc3(np.full((4, 3), 5.0)))
    assert np.isnan(icc3(np.full((4, 3), 0.1)))
    assert np.isnan(icc3([[1, 2], [np.nan, 3]]))
    assert np.isnan(spearman([1, 2, 3], [4, 4, 4]))
    assert np.isnan(spearman([1, 2, np.nan], [np.nan, 1, 2]))
    assert np.isnan(mean_and_error(nothing).mean)
    assert np.isnan(mean_and_error([3.0]).standard_error)
    assert np.isnan(paired_bootstrap(nothing, [1, 2, 3]).low)


def test_wrong_shapes_are_errors_that_say_so():
    with pytest.raises(ValueError, match=r"subjects x at least two raters, got shape \(3,\)"):
        icc3([1, 2, 3])
    with pytest.raises(ValueError, match="at least two raters"):
        icc3([[1], [2]])
    with pytest.raises(ValueError, match="got 3 and 2"):
        spearman([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="one-dimensional"):
        mean_and_error([[1.0]])


def without_scipy(code):
    command = [sys.executable, "-c", f"import sys; sys.modules['scipy'] = None; import gomhc; {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scipy_is_needed_only_by_the_functions_that_use_it():
    done = without_scipy("print(round(gomhc.statistics.icc3([[1, 2], [2, 3], [5, 6]]), 3))")
    assert done.stdout.strip() == "1.0", done.stderr
    done = without_scipy("gomhc.statistics.spearman([1, 2, 3], [1, 3, 2])")
    assert (
        "ModuleNotFoundError: this statistic needs scipy; install it with: pip install 'gomhc[report]'" in done.stderr
    )


def test_spearman_of_published_ranks():
    # IQ and hours of television, the worked example of Wikipedia's article: rho = -29/165.
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165, rel=1e-12)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5), rel=1e-12)  # ties
