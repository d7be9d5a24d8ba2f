"""The result of a comparison as plain data, which compare.json holds: losses, paired differences, curves and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gomhc.lab.comparison.costs import StepCost
from gomhc.lab.comparison.plan import Tried, comparison_tasks, last_loss
from gomhc.lab.comparison.runs import Records
from gomhc.lab.results.record import Record, finite
from gomhc.lab.training.recipe import Recipe
from gomhc.statistics import mean_and_error, paired_bootstrap, paired_t

Result = dict[str, Any]
"""Content of compare.json."""
FORMAT = "gomhc comparison 1"
TOKENS, SECONDS = "differences", "differences_at_equal_seconds"
"""The two lists of differences in a result."""
CUT_SHORT = "learning curves cut short"
"""Where the losses at equal seconds come from, unless methods were trained for them."""


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """The text of a comparison."""

    name: str
    """Name of the corpus, or of its file without the folder."""
    fingerprint: str
    """Hash of the text."""
    tokens: str
    """Hash of the tokens."""


def result(
    recipes: Mapping[str, Recipe],
    seeds: Sequence[int],
    corpus: TrainingText,
    records: Records,
    costs: Mapping[str, StepCost],
    tuned: Mapping[str, Sequence[Tried]],
    equal_seconds: Mapping[str, Recipe] | None,
) -> Result:
    """Summarize the records of all runs; `equal_seconds` are the recipes of the runs at equal seconds, if there are."""

    def found_for(recipes: Mapping[str, Recipe]) -> dict[str, list[Record]]:
        return {
            method: records.of(comparison_tasks({method: recipe}, seeds, corpus.tokens))
            for method, recipe in recipes.items()
        }

    found, timed = found_for(recipes), found_for(equal_seconds or {})
    at_seconds = _last_losses(timed) if timed else _losses_when_first_ends(found, costs)
    base = next(iter(recipes.values()))
    tuning = [tried.records for group in tuned.values() for tried in group]
    groups = (*found.values(), *timed.values(), *tuning)
    everything = {record.key: record for group in groups for record in group}.values()  # methods can share a run
    return finite(
        {
            "format": FORMAT,
            "reference": next(iter(recipes)),
            "seeds": list(seeds),
            "corpus": asdict(corpus),
            "steps": base.steps,
            "tokens": base.steps * base.tokens_per_step,
            TOKENS: _differences(_last_losses(found)),
            SECONDS: _differences(at_seconds),
            "equal_seconds": "complete runs of fewer or more steps" if timed else CUT_SHORT,
            "methods": [
                {
                    "method": method,
                    "recipe": _options(recipe),
                    "tuned": [_tuned(tried) for tried in tuned[method]],
                    "steps_at_equal_seconds": equal_seconds[method].steps if equal_seconds else None,
                    **vars(costs[method]),
                    "time": costs[method].milliseconds / costs[next(iter(recipes))].milliseconds,
                    **_of_method(found[method]),
                }
                for method, recipe in recipes.items()
            ],
            "commits": sorted({record.commit for record in everything}),
            "sources": sorted({record.versions["sources"] for record in everything}),
            "versions": [dict(pairs) for pairs in sorted({_versions(record) for record in everything})],
            "devices": sorted({record.device for record in everything}),
            "core_hours": sum(record.wall_time for record in everything) / 3600,
        }
    )


def _last_losses(found: Mapping[str, Sequence[Record]]) -> dict[str, list[float]]:
    return {method: [last_loss(record) for record in group] for method, group in found.items()}


def _losses_when_first_ends(
    found: Mapping[str, Sequence[Record]], costs: Mapping[str, StepCost]
) -> dict[str, list[float]]:
    """Return the loss of each run at the time at which the first method ends, by interpolation of its curve.

    A slower method is cut short before its learning rate has fallen, so this is the most that a run of that length
    would end with; a faster one is not given the time that it has left.
    """
    reference = next(iter(found))

    def loss(method: str, record: Record) -> float:
        if "diverged" in record.metrics:
            return math.inf
        steps, losses = record.metrics["validation_steps"], record.metrics["validation_losses"]
        return float(np.interp(steps[-1] * costs[reference].milliseconds / costs[method].milliseconds, steps, losses))

    return {method: [loss(method, record) for record in group] for method, group in found.items()}


def method_with(result: Result, mixing: str, num_streams: int) -> dict[str, Any] | None:
    """Return the method with this mixing; None if there is none, or several that differ in other options."""
    found = [
        method
        for method in result["methods"]
        if (method["recipe"]["mixing"], method["recipe"]["num_streams"]) == (mixing, num_streams)
    ]
    return found[0] if len(found) == 1 else None


def difference_between(result: Result, method: str, reference: str, which: str = TOKENS) -> dict[str, Any]:
    """Return the paired difference of any two methods of a result, from their differences from its reference."""
    to_reference = {one["method"]: one["seeds"] for one in result[which]}
    to_reference[result["reference"]] = [0.0] * len(result["seeds"])
    first, second = (np.array(to_reference[name], float) for name in (method, reference))  # None becomes nan
    return finite(_difference(method, reference, first, second))


def _differences(losses: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    reference = next(iter(losses))
    return [
        _difference(method, reference, np.array(losses[method]), np.array(losses[reference]))
        for method in losses
        if method != reference
    ]


def _difference(method: str, reference: str, first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Return the paired difference; a seed in which a run diverged has none."""
    with np.errstate(invalid="ignore"):
        each = np.where(np.isfinite(first) & np.isfinite(second), np.subtract(first, second), np.nan)
    interval = paired_t(each, np.zeros_like(each))
    bootstrap = paired_bootstrap(each, np.zeros_like(each))
    return {
        "method": method,
        "reference": reference,
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "interval": "95 % interval of Student's t over seeds",
        "bootstrap": [bootstrap.low, bootstrap.high],
        "seeds": each.tolist(),
    }


def _options(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in asdict(recipe).items() if name not in ("corpus", "seed")}


def _tuned(tried: Tried) -> dict[str, Any]:
    return {
        "option": tried.tuning.option,
        "values": list(tried.losses),
        "losses": list(tried.losses.values()),
        "best": tried.best,
        "seeds": list(tried.tuning.seeds),
        "steps": tried.tuning.steps,
    }


def _of_method(group: Sequence[Record]) -> dict[str, Any]:
    """Return the losses of all seeds, and means over the seeds that did not diverge."""
    metrics = [record.metrics for record in group if "diverged" not in record.metrics]
    estimate = mean_and_error([values["validation_losses"][-1] for values in metrics])
    return {
        "losses": [last_loss(record) for record in group],
        "loss": estimate.mean,
        "standard_error": estimate.standard_error,
        "diverged": [record.metrics["diverged"] for record in group if "diverged" in record.metrics],
        "validation": _band(metrics, "validation_steps", "validation_losses"),
        "training": _band(metrics, "steps", "losses"),
        "gradient_norm": _band(metrics, "steps", "gradient_norms"),
        "jitter": _mean([values["jitter"] for values in metrics]),
        "jitters": [record.metrics.get("jitter") for record in group],
        "largest_norm": max((values["largest_norm"] for values in metrics), default=None),
        "streams": {
            name: _mean([values["streams"][name] for values in metrics])
            for name in (metrics[0]["streams"] if metrics else {})
        },
    }


def _band(metrics: Sequence[Mapping[str, Any]], steps: str, values: str) -> dict[str, list[float]]:
    """Return mean, least and largest over seeds at each step."""
    if not metrics:
        return {"steps": [], "mean": [], "low": [], "high": []}
    table = np.array([one[values] for one in metrics])
    bands = {"mean": table.mean(0), "low": table.min(0), "high": table.max(0)}
    return {"steps": metrics[0][steps], **{name: band.round(5).tolist() for name, band in bands.items()}}


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def _versions(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple((name, version) for name, version in record.versions.items() if name != "sources")
