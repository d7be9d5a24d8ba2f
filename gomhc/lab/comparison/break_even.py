"""The step time up to which a method is ahead of the reference at equal training time.

r = time of a step, as a multiple of the reference's; D(r) = difference of the losses at equal training time
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gomhc.lab.comparison.result import CUT_SHORT, SECONDS, TOKENS, Result
from gomhc.statistics import paired_t

FARTHEST = 10.0
"""An interval that reaches beyond this step time, or its inverse, is extrapolated too far to be told."""


@dataclass(frozen=True)
class BreakEven:
    """The r at which D(r) is zero, with its 95 % interval over seeds, and the r that was measured."""

    time: float
    low: float
    high: float
    measured: float


def break_even(result: Result, method: str) -> BreakEven | None:
    r"""Return where a method breaks even; None without complete runs at equal seconds.

    It is also None if a step of the method is not slower, if fewer steps do not raise the loss in every seed, or if
    they raise it so little that the interval reaches beyond `FARTHEST`.

        D(r) = D(1) + (D(t) - D(1)) log r / log t,    D(r) = 0 at log r = log t D(1) / (D(1) - D(t))

    D(1) is the difference at equal tokens, D(t) that at equal seconds, whose runs had t times fewer steps. A faster
    step gives the method more steps, and its loss is taken as linear in the logarithm of their number. The interval
    is Student's t over the seeds' log r.
    """
    tokens, seconds = (_seeds(result, method, which) for which in (TOKENS, SECONDS))
    measured = next(one for one in result["methods"] if one["method"] == method)
    lost = seconds - tokens
    if result["equal_seconds"] == CUT_SHORT or measured["time"] <= 1 or not np.all(lost > 0):  # nan is not above zero
        return None
    logarithms = -math.log(result["steps"] / measured["steps_at_equal_seconds"]) * tokens / lost
    mean = paired_t(logarithms, np.zeros_like(logarithms))
    if max(abs(mean.low), abs(mean.high)) > math.log(FARTHEST):
        return None
    return BreakEven(math.exp(mean.mean), math.exp(mean.low), math.exp(mean.high), measured["time"])


def _seeds(result: Result, method: str, which: str) -> np.ndarray:
    difference: dict[str, Any] = next(one for one in result[which] if one["method"] == method)
    return np.array(difference["seeds"], float)  # None becomes nan
