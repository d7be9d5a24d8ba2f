"""Results of comparisons that nobody has run: the content of compare.json for given losses of each method and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gomhc.lab.comparison.methods import recipes_of
from gomhc.lab.comparison.result import FORMAT, Result
from gomhc.lab.training import Recipe
from gomhc.statistics import paired_t

Losses = Mapping[str, Sequence[float | None]]


def comparison(losses: Losses, jitters: Losses | None = None, tokens: int = 5000) -> Result:
    """Return the result of methods with these last validation losses, a number a seed, None for a run that diverged."""
    recipes = recipes_of(tuple(losses), Recipe())
    reference = next(iter(losses))
    differences = [_difference(method, reference, losses) for method in losses if method != reference]
    return {
        "format": FORMAT,
        "reference": reference,
        "seeds": list(range(len(losses[reference]))),
        "corpus": {"name": "stories.txt", "fingerprint": "f", "tokens": "t"},
        "steps": 100,
        "tokens": tokens,
        "differences": differences,
        "differences_at_equal_seconds": differences,
        "equal_seconds": "learning curves cut short",
        "methods": [
            {
                "method": method,
                "recipe": asdict(recipes[method]),
                "tuned": [],
                "steps_at_equal_seconds": None,
                "milliseconds": 10.0,
                "spread": 1.0,
                "megabytes": 5.0,
                "num_parameters": 1000,
                "time": 1.0,
                **_numbers(losses[method], (jitters or {}).get(method, [0.2] * len(losses[method]))),
            }
            for method in losses
        ],
        "commits": ["c"],
        "sources": ["s"],
        "versions": [{"gomhc": "0"}],
        "devices": ["CPU"],
        "core_hours": 1.0,
    }


def _difference(method: str, reference: str, losses: Losses) -> dict[str, Any]:
    pairs = zip(losses[method], losses[reference], strict=True)
    each = [None if None in pair else pair[0] - pair[1] for pair in pairs]  # type: ignore[operator]
    interval = paired_t([math.nan if value is None else value for value in each], np.zeros(len(each)))
    numbers = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {"method": method, "reference": reference, **finite, "seeds": each}


def _numbers(losses: Sequence[float | None], jitters: Sequence[float | None]) -> dict[str, Any]:
    ended = [loss for loss in losses if loss is not None]
    mean = sum(ended) / len(ended) if ended else None
    curve = [3.0, 2.5, mean or 2.0]
    band = {"steps": [0, 50, 100], "mean": curve, "low": curve, "high": curve}
    if not ended:
        band = {name: [] for name in band}
    present = [jitter for jitter in jitters if jitter is not None]
    return {
        "losses": list(losses),
        "loss": mean,
        "standard_error": 0.001,
        "diverged": ["at step 1 the loss is nan"] * (len(losses) - len(ended)),
        "validation": band,
        "training": band,
        "gradient_norm": band,
        "jitter": sum(present) / len(present) if present else None,
        "jitters": list(jitters),
        "largest_norm": 2.0,
        "streams": {},
    }
