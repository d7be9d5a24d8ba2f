"""The methods of a comparison: recipes that share text, batches and weights, and differ in the rest.

A method is written as a mixing, with options of the recipe after an @:

    none    go:expressivity=1    go@start=equal-streams,readout=learned    none:as-wide
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gomhc.birkhoff.registry import NO_MIXING
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
OPTIONS = tuple(field.name for field in fields(Recipe) if field.name not in SHARED)
"""Fields of a recipe that can be an option of a method."""


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
    mixings = [method.partition("@")[0] for method in methods]
    with_streams = next((mixing for mixing in mixings if mixing.partition(":")[0] != NO_MIXING), None)
    return with_wide_controls({method: _recipe(method, base, with_streams) for method in methods})


def with_wide_controls(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes, each `none:as-wide` with the streams of its method, unless it has options of its own."""

    def matched(method: str, recipe: Recipe) -> Recipe:
        twin = next((other for other in recipes.values() if other.mixing == recipe.as_wide_as), recipe)
        own = options_of(method.partition("@")[2])
        return replace(recipe, **{name: getattr(twin, name) for name in OF_STREAMS if name not in own})

    return {method: matched(method, recipe) if recipe.as_wide_as else recipe for method, recipe in recipes.items()}


def _recipe(method: str, base: Recipe, with_streams: str | None) -> Recipe:
    mixing, _, options = method.partition("@")
    if mixing == AS_WIDE.removesuffix("="):
        if with_streams is None:
            raise ValueError(f"{mixing} needs a method with streams beside it, or one of its own: {AS_WIDE}go")
        mixing = AS_WIDE + with_streams
    try:
        return replace(base, mixing=mixing, **options_of(options))
    except ValueError as error:
        raise ValueError(f"method {method}: {error}") from None


def options_of(text: str) -> dict[str, Any]:
    """Return `start=equal-streams,readout=learned` as a dictionary."""
    pairs = [pair.partition("=") for pair in text.split(",") if text]
    return {_option(name, equals, value): value_of(value) for name, equals, value in pairs}


def _option(name: str, equals: str, value: str) -> str:
    if not equals or not value:
        raise ValueError(f"options of a method must look like start=mean-stream,readout=learned, got {name!r}")
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
