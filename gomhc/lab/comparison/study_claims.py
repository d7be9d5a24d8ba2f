"""What a study with several seeds says of the paper's claims on language models.

Each claim is about a ratio of two methods, of losses or of the jitter of gradient norms. Ratios are paired by seed, and
their 95 % intervals are those of Student's t for logarithms. A claim about several pairs is met if the interval of each
pair meets it, and not met if that of one pair lies beyond its limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from gomhc.lab.comparison.result import Result, method_with
from gomhc.lab.results.claim import Finding
from gomhc.statistics import paired_t

HC = "unconstrained"
CONSTRAINED = {"mHC-lite": "permutations", "KromHC": "kronecker", "go s = 1": "go:expressivity=1", "go s = 2": "go"}
"""The paper's variants -> their mixings in the study."""
FOUR, EIGHT = 4, 8
"""Numbers of streams that the claims are about."""
Method = Mapping[str, Any]


@dataclass(frozen=True)
class Ratio:
    """A ratio of two methods, geometric mean over seeds, with its interval."""

    value: float
    low: float
    high: float

    @property
    def apart(self) -> Ratio:
        """The ratio of the larger to the smaller."""
        if self.low >= 1:
            return self
        if self.high <= 1:
            return Ratio(1 / self.value, 1 / self.high, 1 / self.low)
        return Ratio(max(self.value, 1 / self.value), 1.0, max(self.high, 1 / self.low))


def study_findings(study: Mapping[str, Result]) -> dict[str, Finding]:
    """Return what a study says of the claims for which it has the methods; where stages differ, the last one counts."""
    findings: dict[str, Finding] = {}
    for result in study.values():
        found = {"lm-d8": _eight_streams(result), **_four_streams(result)}
        findings |= {claim: finding for claim, finding in found.items() if finding is not None}
    return findings


def _four_streams(result: Result) -> dict[str, Finding | None]:
    methods = {name: method_with(result, mixing, FOUR) for name, mixing in CONSTRAINED.items()}
    hc = method_with(result, HC, FOUR)
    constrained = [method for method in methods.values() if method is not None]
    if len(constrained) < len(CONSTRAINED):
        return {}
    size = _size(result)
    losses = _largest(_ratios(combinations(constrained, 2), "losses"))
    jitters = _largest(_ratios(combinations(constrained, 2), "jitters"))
    steadier = None if hc is None else _least(_ratios(((hc, method) for method in constrained), "jitters"))
    return {
        "lm-loss": _finding(losses, lambda ratio: ratio - 1, "{:.2%} apart at most", size),
        "lm-jitter": _finding(jitters, lambda ratio: ratio, "{:.3f} times at most", size),
        "lm-hc": _finding(steadier, lambda ratio: ratio, "{:.3f} times the jitter of the least steady of them", size),
    }


def _eight_streams(result: Result) -> Finding | None:
    go, kromhc = (method_with(result, CONSTRAINED[name], EIGHT) for name in ("go s = 1", "KromHC"))
    if go is None or kromhc is None:
        return None
    ratio = _least(_ratios([(go, kromhc)], "losses"))
    return _finding(ratio, lambda value: value - 1, "go {:+.2%} from KromHC", _size(result))


def _ratios(pairs: Iterable[tuple[Method, Method]], name: str) -> list[Ratio] | None:
    """Return the ratio of each pair; None where a stage does not have the number, or too few runs ended."""
    ratios = []
    for first, second in pairs:
        if name not in first or name not in second:
            return None
        difference = paired_t(_logarithms(first[name]), _logarithms(second[name]))
        if math.isnan(difference.low):
            return None
        ratios.append(Ratio(*(math.exp(value) for value in (difference.mean, difference.low, difference.high))))
    return ratios


def _logarithms(values: Sequence[float | None]) -> np.ndarray:
    return np.log([math.nan if value is None else value for value in values])


def _largest(ratios: Sequence[Ratio] | None) -> Ratio | None:
    """Return the largest ratio of two methods, whichever of them is larger."""
    if not ratios:
        return None
    apart = [ratio.apart for ratio in ratios]
    return Ratio(*(max(getattr(ratio, name) for ratio in apart) for name in ("value", "low", "high")))


def _least(ratios: Sequence[Ratio] | None) -> Ratio | None:
    if not ratios:
        return None
    return Ratio(*(min(getattr(ratio, name) for ratio in ratios) for name in ("value", "low", "high")))


def _finding(ratio: Ratio | None, measure: Callable[[float], float], words: str, size: str) -> Finding | None:
    if ratio is None:
        return None
    value, low, high = map(measure, (ratio.value, ratio.low, ratio.high))
    number = words[words.index("{") : words.index("}") + 1]
    shown = words.format(value), *(number.format(end) for end in (low, high))
    text = "{} (95 % interval {} to {}; ".format(*(part.replace("-", "−") for part in shown))
    return Finding(value, f"{text}{size})", full_size=False, interval=(low, high))


def _size(result: Result) -> str:
    recipe = result["methods"][0]["recipe"]
    return (
        f"{len(result['seeds'])} seeds, {recipe['num_layers']} layers of {recipe['num_channels']} channels, "
        f"{result['tokens']:,} tokens of {result['corpus']['name']}"
    )
