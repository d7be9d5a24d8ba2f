"""All experiments, found in the files of this folder and in those that GOMHC_PLUGINS lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from types import ModuleType

import gomhc.lab.experiments
from gomhc.lab import plugins
from gomhc.lab.experiments.experiment import Experiment


@cache
def all_experiments() -> tuple[Experiment, ...]:
    """Return every experiment in the order of the page: main text, appendices, then beyond the paper."""
    return find_experiments([*_own_modules(), *plugins.load()])


def find_experiments(modules: Iterable[ModuleType]) -> tuple[Experiment, ...]:
    """Every experiment that these modules define, in the order of the page; names and claims must be unique."""
    experiments = [cls() for module in modules for cls in _experiment_classes(module)]
    for experiment in experiments:
        _require_described(experiment)
    _require_unique([(experiment.name, experiment) for experiment in experiments], "name")
    _require_unique([(claim.id, experiment) for experiment in experiments for claim in experiment.claims], "claim")
    return tuple(sorted(experiments, key=lambda experiment: (experiment.order, experiment.name)))


def _experiment_classes(module: ModuleType) -> Iterator[type[Experiment]]:
    for value in vars(module).values():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and issubclass(value, Experiment) and (not isabstract(value) or "name" in vars(value)):
            yield value


def _require_described(experiment: Experiment) -> None:
    where = f"{type(experiment).__module__}.{type(experiment).__name__}"
    for attribute in ("name", "title", "paper"):
        text = getattr(experiment, attribute, None)
        if not isinstance(text, str) or not text:
            raise ValueError(f"the {attribute} of the experiment {where} must be text, got {text!r}")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", experiment.name):
        raise ValueError(
            f"the name of {where} must have only lower-case letters, digits and single hyphens, got {experiment.name!r}"
        )


def _require_unique(owners: list[tuple[str, Experiment]], what: str) -> None:
    first: dict[str, Experiment] = {}
    for text, experiment in owners:
        if text in first:
            modules = " and ".join(type(item).__module__ for item in (first[text], experiment))
            raise ValueError(f"two experiments have the {what} {text!r}, in {modules}; rename one of them")
        first[text] = experiment


def _own_modules() -> Iterator[ModuleType]:
    package = gomhc.lab.experiments
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        if module.name != __name__:
            yield import_module(module.name)
