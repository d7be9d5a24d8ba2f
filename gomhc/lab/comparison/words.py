"""What a comparison has found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gomhc.lab.comparison.result import Result


def findings(result: Result) -> list[str]:
    """Return a sentence for each difference to the reference, then those on time and on runs that diverged."""
    sentences = [_sentence(difference, "the same tokens") for difference in result["differences"]]
    how = f"the same training time on one thread ({result['equal_seconds']})"
    sentences += [_sentence(difference, how) for difference in result["differences_at_equal_seconds"]]
    return sentences + [
        f"{method['method']} diverged with {len(method['diverged'])} of {len(method['losses'])} seeds: "
        f"{method['diverged'][0]}."
        for method in result["methods"]
        if method["diverged"]
    ]


def _sentence(difference: Mapping[str, Any], when: str) -> str:
    method, reference, mean = (difference[name] for name in ("method", "reference", "mean"))
    if mean is None or difference["low"] is None:
        return f"With {when}, {method} cannot be compared with {reference}: too few pairs of runs ended."
    interval = f"{signed(mean)} ({signed(difference['low'])} to {signed(difference['high'])})"
    seeds = agreement(difference)
    if difference["high"] < 0:
        return f"With {when}, {method} is better than {reference}: {interval}; {seeds}."
    if difference["low"] > 0:
        return f"With {when}, {method} is worse than {reference}: {interval}; {seeds}."
    return f"With {when}, no difference between {method} and {reference} is shown: {interval}; {seeds}."


def agreement(difference: Mapping[str, Any]) -> str:
    """Return `lower in 4 of 5 seeds`."""
    pairs = [value for value in difference["seeds"] if value is not None]
    return f"lower in {sum(value < 0 for value in pairs)} of {len(pairs)} seeds"


def signed(value: float) -> str:
    """Return a loss difference with its sign and four decimals; −0.0042."""
    return f"{value:+.4f}".replace("-", "−")


def interval(difference: Mapping[str, Any] | None) -> str:
    """Return `−0.0042 (−0.0061 to −0.0023)`, or nothing where there is no difference."""
    if difference is None or difference["mean"] is None or difference["low"] is None:
        return ""
    return f"{signed(difference['mean'])} ({signed(difference['low'])} to {signed(difference['high'])})"


def signs(difference: Mapping[str, Any] | None) -> str:
    """Return the sign of the difference of each seed; · where a run diverged."""
    if difference is None:
        return ""
    return "".join("·" if value is None else "−" if value < 0 else "+" for value in difference["seeds"])


def difference_of(result: Result, method: str, which: str = "differences") -> Mapping[str, Any] | None:
    """Return the difference of a method to the reference, or None for the reference itself."""
    return next((difference for difference in result[which] if difference["method"] == method), None)
