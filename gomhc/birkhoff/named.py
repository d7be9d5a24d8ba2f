"""Which parametrization does a name mean? `go`, or with options behind a colon: `go:expressivity=3,rotation=givens`."""

from __future__ import annotations

import ast
import warnings
from dataclasses import fields
from typing import Any

from gomhc.birkhoff import PARAMETRIZATIONS, Parametrization


def named(name: str, num_streams: int) -> Parametrization:
    """The parametrization of that name, for so many streams."""
    key, _, options = name.partition(":")
    if key not in PARAMETRIZATIONS:
        raise ValueError(f"the mixing must be none or one of {', '.join(PARAMETRIZATIONS)}, got {key!r}")
    cls, values = PARAMETRIZATIONS[key], _options(options)
    known = [field.name for field in fields(cls) if field.name != "num_streams"]
    if unknown := [option for option in values if option not in known]:
        raise ValueError(f"{key} has the options {', '.join(known)}, got {unknown[0]}")
    return cls(num_streams=num_streams, **values)


def _options(text: str) -> dict[str, Any]:
    """`a=1,b=word,c=(2,3)` as a dictionary."""
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            call = ast.parse(f"f({text})", mode="eval").body
        names = [keyword.arg for keyword in call.keywords] if isinstance(call, ast.Call) else [None]
        if not isinstance(call, ast.Call) or call.args or None in names or len(set(names)) < len(names):
            raise ValueError
        return {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"options must look like expressivity=3,rotation=givens, got {text!r}") from None


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
