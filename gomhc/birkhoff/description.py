"""Parametrizations as plain data that JSON can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.birkhoff.registry import PARAMETRIZATIONS


def describe(parametrization: Parametrization) -> dict[str, Any]:
    """Its key and its fields, as JSON can hold them: `from_description` makes the same value of it."""
    values = {field.name: _plain(getattr(parametrization, field.name)) for field in fields(parametrization)}
    return {"key": parametrization.key, **values}


def from_description(description: Mapping[str, Any]) -> Parametrization:
    """The parametrization that `describe` was given."""
    options = {name: _value(value) for name, value in description.items() if name != "key"}
    key = description.get("key")
    if key not in PARAMETRIZATIONS:
        raise ValueError(f"expected the key of a parametrization ({', '.join(PARAMETRIZATIONS)}), got {key!r}")
    known = [field.name for field in fields(PARAMETRIZATIONS[key])]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(
            f"{key} has the fields {', '.join(known)}, got {', '.join(unknown)}; another version of gomhc wrote this"
        )
    return PARAMETRIZATIONS[key](**options)


def _plain(value: Any) -> Any:
    if isinstance(value, Parametrization):
        return describe(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return from_description(value)
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
