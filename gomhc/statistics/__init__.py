"""Statistics of ratings and of training curves; scipy is imported only by the functions that need it."""

from __future__ import annotations

from gomhc.statistics.agreement import (
    Difference,
    Estimate,
    cross_icc3,
    icc3,
    mean_and_error,
    paired_bootstrap,
    paired_t,
    spearman,
)

__all__ = ["Difference", "Estimate", "cross_icc3", "icc3", "mean_and_error", "paired_bootstrap", "paired_t", "spearman"]
