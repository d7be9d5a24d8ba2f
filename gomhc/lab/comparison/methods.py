"""The methods of a comparison: recipes that share text and batches, weights where shapes agree, and differ in the rest.

A method is written as a mixing, with options of the recipe after an @:

    none    go:expressivity=1    go@start=equal-streams,readout=learned    none:as-wide
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gomhc.lab.comparison.runs import OF_STREAMS
from gomhc.lab.training.recipe import AS_WIDE, Recipe

SHARED = (
    "mixing",
    "corpus",
    "tokenizer",
    "context_length",
    "steps",
    "batch_size",
    "accumulation",
    "evaluate_every",
    "evaluation_windows",
    "sample_tokens",
    "save_every",
    "keep",
    "seed",
)
"""Fields of a recipe that all methods share, because they decide the batches or when the loss is measured."""
NOT_HERE = ("sample_tokens", "keep")
"""Fields of a recipe that no comparison uses."""
OPTIONS = tuple(field.name for field in fields(Recipe) if field.name not in SHARED)
"""Fields of a recipe that can be an option of a method."""
OF_SIZE = (*OF_STREAMS, "num_layers", "num_heads", "num_channels")
"""Options that decide the number of parameters, which `none:as-wide` shares with the method that it matches."""


def recipes_of(methods: Sequence[str], base: Recipe) -> dict[str, Recipe]:
    """Return the recipe of each method: `base` with its mixing and its options.

    `none:as-wide` becomes the plain network with as many parameters as the first method that has streams, and
    `none:as-wide=go` as the first method whose mixing is go.
    """
    if len(methods) < 2:
        raise ValueError(
            f"a comparison needs at least two methods, such as none and go, before all options; "
            f"got {' '.join(methods) or 'no method'}"
        )
    if twice := [method for index, method in enumerate(methods) if method in methods[:index]]:
        raise ValueError(f"every method must be given once, got {twice[0]} twice")
    controls = [method for method in methods if method.startswith(AS_WIDE.removesuffix("="))]
    others = {method: _recipe(method, base, ()) for method in methods if method not in controls}
    recipes = others | {method: _recipe(method, base, others.values()) for method in controls}
    return {method: recipes[method] for method in methods}


def with_wide_controls(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Give each `none:as-wide` the size of the method that it matches; its own options take precedence."""

    def matched(method: str, recipe: Recipe) -> Recipe:
        own = options_of(method.partition("@")[2])
        size = _matched_size(recipe.mixing, recipes.values())
        return replace(recipe, **{name: value for name, value in size.items() if name not in own})

    return {method: matched(method, recipe) for method, recipe in recipes.items()}


def _recipe(method: str, base: Recipe, others: Collection[Recipe]) -> Recipe:
    """Return `base` with the mixing and the options of a method, which matches one of the others if it is a control."""
    mixing, _, options = method.partition("@")
    if mixing == AS_WIDE.removesuffix("="):
        with_streams = next((recipe.mixing for recipe in others if recipe.parametrization is not None), None)
        if with_streams is None:
            raise ValueError(f"{mixing} needs a method with streams beside it, or one of its own: {AS_WIDE}go")
        mixing = AS_WIDE + with_streams
    try:
        return replace(base, mixing=mixing, **_matched_size(mixing, others) | options_of(options))
    except ValueError as error:
        raise ValueError(f"method {method}: {error}") from None


def _matched_size(mixing: str, others: Collection[Recipe]) -> dict[str, Any]:
    """Return the options of the size of the first method that `none:as-wide=MIXING` matches; nothing without one."""
    twin = next((recipe for recipe in others if AS_WIDE + recipe.mixing == mixing), None)
    return {} if twin is None else {name: getattr(twin, name) for name in OF_SIZE}


def options_of(text: str) -> dict[str, Any]:
    """Return `start=equal-streams,readout=learned` as a dictionary."""
    pairs = [pair.partition("=") for pair in text.split(",") if text]
    names = [name for name, _, _ in pairs]
    if twice := [name for index, name in enumerate(names) if name in names[:index]]:
        raise ValueError(f"every option of a method must be given once, got {twice[0]} twice")
    return {_option(name, equals, value): value_of(value) for name, equals, value in pairs}


def _option(name: str, equals: str, value: str) -> str:
    if not equals or not value:
        raise ValueError(f"options of a method must look like start=mean-stream,readout=learned, got {name!r}")
    if name == "mixing":
        raise ValueError("the mixing of a method stands before the @, as in sinkhorn@start=equal-streams")
    if name in NOT_HERE:
        raise ValueError(f"{name} does not apply to a comparison; leave it out")
    if name in SHARED:
        raise ValueError(f"all methods share {name}, so it cannot be an option of one; use --{name.replace('_', '-')}")
    if name not in OPTIONS:
        raise ValueError(f"the options of a method are {', '.join(OPTIONS)}; got {name!r}")
    return name


def value_of(text: str) -> Any:
    """Return the number, truth value or None that the text spells, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
