"""What a comparison runs: tuning with seeds of its own, all methods with all seeds, and again at equal seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gomhc.checks import require_whole
from gomhc.lab.comparison.costs import StepCost
from gomhc.lab.comparison.methods import OF_SIZE, OPTIONS, value_of
from gomhc.lab.comparison.runs import Records, Task, without_meaning
from gomhc.lab.results.record import Record
from gomhc.lab.training.recipe import Recipe

TUNING_SEED = 10_000
"""Seeds for tuning start at the comparison's first seed plus this."""


@dataclass(frozen=True)
class Tuning:
    """An option of the recipe, and the values that are tried."""

    option: str
    values: tuple[object, ...]
    seeds: tuple[int, ...]
    steps: int

    @classmethod
    def parse(cls, text: str, base: Recipe, num_seeds: int, steps: int | None) -> Tuning:
        """Return the tuning that `learning_rate=1e-3,2e-3` asks for; `require` checks its values."""
        require_whole("tuning_seeds", num_seeds, 1)
        if steps is not None:
            require_whole("tuning_steps", steps, 1)
        option, _, values = text.partition("=")
        tried = tuple(value_of(value) for value in values.split(","))
        if len(tried) < 2:
            raise ValueError(f"tune must be an option and two values or more, learning_rate=1e-3,2e-3; got {text!r}")
        if twice := [value for index, value in enumerate(tried) if value in tried[:index]]:
            raise ValueError(f"tune must try different values, got {twice[0]} twice in {text!r}")
        if option not in OPTIONS:
            raise ValueError(f"tune must vary one of {', '.join(OPTIONS)}; got {option!r}")
        first = base.seed + TUNING_SEED
        return cls(option, tried, tuple(range(first, first + num_seeds)), steps or base.steps)

    def require(self, method: str, recipe: Recipe) -> None:
        """Raise a ValueError if the recipe of a method does not take one of the values."""
        for value in self.values if self.applies(recipe) else ():
            try:
                self.applied(recipe, value)
            except ValueError as error:
                raise ValueError(f"--tune {self.option}={value}, method {method}: {error}") from None

    def applies(self, recipe: Recipe) -> bool:
        """Return whether the option is tuned for this method; `none:as-wide` takes its size from another method."""
        return self.option not in without_meaning(recipe) and not (recipe.as_wide_as and self.option in OF_SIZE)

    def tasks(self, recipes: Mapping[str, Recipe], data: str) -> list[Task]:
        """Return the runs of all methods, values and seeds."""
        return [
            Task(method, self._recipe(recipe, value, seed), data)
            for seed in self.seeds
            for method, recipe in recipes.items()
            if self.applies(recipe)
            for value in self.values
        ]

    def tried(self, method: str, recipe: Recipe, data: str, records: Records) -> Tried:
        """Return the mean last validation loss of each value; a run that diverged counts as infinite."""
        found = {
            value: records.of([Task(method, self._recipe(recipe, value, seed), data) for seed in self.seeds])
            for value in self.values
        }
        losses = {value: float(np.mean([last_loss(record) for record in runs])) for value, runs in found.items()}
        return Tried(self, losses, [record for runs in found.values() for record in runs])

    def applied(self, recipe: Recipe, value: object) -> Recipe:
        """Return the recipe with a value of the option."""
        options: dict[str, Any] = {self.option: value}
        return replace(recipe, **options)

    def _recipe(self, recipe: Recipe, value: object, seed: int) -> Recipe:
        every = min(recipe.evaluate_every, self.steps)
        return replace(self.applied(recipe, value), seed=seed, steps=self.steps, evaluate_every=every)


@dataclass(frozen=True)
class Tried:
    """What tuning found for a method: the mean last validation loss of each value."""

    tuning: Tuning
    losses: Mapping[object, float]
    records: Sequence[Record]

    @property
    def best(self) -> object:
        """The value with the lowest loss, the first of equals."""
        return min(self.losses, key=lambda value: self.losses[value])


def comparison_tasks(recipes: Mapping[str, Recipe], seeds: Sequence[int], data: str) -> list[Task]:
    """Return the run of every method and seed; all methods of a seed come before the next seed."""
    return [Task(method, replace(recipe, seed=seed), data) for seed in seeds for method, recipe in recipes.items()]


def at_equal_seconds(recipes: Mapping[str, Recipe], costs: Mapping[str, StepCost]) -> dict[str, Recipe]:
    """Return each recipe with as many steps as take the time of the first method; their schedules are complete."""
    reference = next(iter(recipes))

    def steps(method: str) -> int:
        ratio = costs[reference].milliseconds / costs[method].milliseconds
        return max(1, round(recipes[reference].steps * ratio))

    return {method: replace(recipe, steps=steps(method)) for method, recipe in recipes.items()}


def last_loss(record: Record) -> float:
    """Return the last validation loss of a record; infinite if the run diverged."""
    return math.inf if "diverged" in record.metrics else record.metrics["validation_losses"][-1]
