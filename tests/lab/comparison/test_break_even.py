"""Break-even is the step time at which a method ends level with the reference, if loss falls with the log of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from gomhc.lab.comparison.break_even import break_even
from gomhc.lab.comparison.result import CUT_SHORT
from gomhc.lab.comparison.words import findings

SLOPE = 0.2
"""By how much the loss falls when the number of steps grows by a factor of e."""


def compared(gains: Sequence[float], time: float, equal_seconds: str = "complete runs") -> dict[str, Any]:
    """A method that lowers the loss by `gains` at equal tokens, one for each seed, and takes `time` times as long."""
    seconds = [SLOPE * math.log(time) - gain for gain in gains]
    lists = {"differences": [-gain for gain in gains], "differences_at_equal_seconds": seconds}
    return {
        "reference": "none",
        "equal_seconds": equal_seconds,
        "steps": 1000,
        "methods": [
            {"method": "none", "time": 1.0, "steps_at_equal_seconds": 1000, "diverged": []},
            {"method": "go", "time": time, "steps_at_equal_seconds": 1000 / time, "diverged": []},
        ],
        **{
            which: [{"method": "go", "reference": "none", "mean": 0.0, "low": -1.0, "high": 1.0, "seeds": seeds}]
            for which, seeds in lists.items()
        },
    }


@pytest.mark.parametrize("time", [1.05, 1.5, 3.0])
@pytest.mark.parametrize("gain", [-0.05, 0.0, 0.016])
def test_break_even_is_the_time_that_costs_as_much_as_is_gained(gain: float, time: float) -> None:
    found = break_even(compared([gain, gain], time), "go")
    assert found is not None
    assert found.time == pytest.approx(math.exp(gain / SLOPE))
    assert (found.low, found.high) == pytest.approx((found.time, found.time))
    assert found.measured == time


def test_interval_is_that_of_student_over_seeds() -> None:
    found = break_even(compared([0.01, 0.02, 0.03], 1.5), "go")
    assert found is not None
    half = 4.302653 * 0.01 / SLOPE / math.sqrt(3)  # the quantile of Student's t with two degrees of freedom
    assert math.log(found.time) == pytest.approx(0.02 / SLOPE)
    assert math.log(found.high) - math.log(found.time) == pytest.approx(half, rel=1e-6)
    assert math.log(found.time) - math.log(found.low) == pytest.approx(half, rel=1e-6)


def test_nothing_is_told_where_time_does_not_tell() -> None:
    assert break_even(compared([0.01, 0.02], 1.5, CUT_SHORT), "go") is None
    faster = compared([0.01, 0.02], 0.9)
    faster["differences_at_equal_seconds"][0]["seeds"] = [0.01, 0.02]  # although it has more steps
    assert break_even(faster, "go") is None
    lower_in_fewer_steps = compared([0.01, 0.02], 1.5)
    lower_in_fewer_steps["differences_at_equal_seconds"][0]["seeds"][1] = -0.03
    assert break_even(lower_in_fewer_steps, "go") is None
    diverged = compared([0.01, 0.02], 1.5)
    diverged["differences"][0]["seeds"][0] = None
    assert break_even(diverged, "go") is None


def test_nothing_is_told_where_it_would_be_extrapolated_far() -> None:
    hardly_slower = compared([0.01, 0.02], 1.5)
    hardly_slower["differences_at_equal_seconds"][0]["seeds"] = [-0.01 + 1e-9, -0.02 + 1e-4]
    assert break_even(hardly_slower, "go") is None


def test_the_steps_that_were_trained_count_not_the_time_that_was_measured() -> None:
    rounded = compared([0.01, 0.01], 1.5)
    rounded["methods"][1]["time"] = 1.76
    found = break_even(rounded, "go")
    assert found is not None
    assert found.time == pytest.approx(math.exp(0.01 / SLOPE))
    assert found.measured == 1.76


def test_findings_say_it() -> None:
    told = findings(compared([0.02, 0.02], 1.48))
    assert any(
        "if its step takes 1.11 times as long as that of the plain network" in sentence and "1.48 times" in sentence
        for sentence in told
    )
    assert not any("breaks even" in sentence for sentence in findings(compared([0.02, 0.02], 1.48, CUT_SHORT)))
