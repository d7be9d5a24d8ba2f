"""What do these numbers say? Statistics of curves and of ratings; numpy alone."""

from __future__ import annotations

from gomhc.statistics.agreement import (
    Difference,
    Estimate,
    cross_icc3,
    icc3,
    mean_and_error,
    paired_bootstrap,
    spearman,
)

__all__ = ["Difference", "Estimate", "cross_icc3", "icc3", "mean_and_error", "paired_bootstrap", "spearman"]
