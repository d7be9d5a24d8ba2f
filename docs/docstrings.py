r"""Docstrings as reStructuredText.

Ours are plain text: an indented block is an equation, and stars, bars and underscores mean themselves. Roles
(:class:`...`), code in backticks and examples behind `::` are reStructuredText already.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_CODE = re.compile(r"(`+[^`]+`+)")
COLON = "\ue000"
"""Stands for a colon in the docstring of an attribute, where napoleon takes what is before a colon for a type."""
_SECTION = re.compile(r"(Args|Returns|Yields|Raises|Shape|Note):$")


def to_restructured_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Mark equations as literal and escape the rest: a handler of Sphinx's `autodoc-process-docstring`."""
    lines[:] = converted(lines)
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def with_colons(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put the colons back that were hidden from napoleon."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


def converted(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    result: list[str] = []
    literal_until: int | None = None  # the indentation at which a literal block ends
    in_section = False
    for line in lines:
        indentation = len(line) - len(line.lstrip())
        if literal_until is not None and line.strip() and indentation <= literal_until:
            literal_until = None
        if literal_until is not None or not line.strip():
            result.append(line)
            continue
        if indentation == 0:
            in_section = bool(_SECTION.match(line))
        if indentation > 0 and not in_section and (not result or not result[-1].strip()):
            result += ["::", ""]
            result.append(line)
            literal_until = 0
            continue
        if line.rstrip().endswith("::"):
            result.append(line)
            literal_until = indentation
            continue
        result.append(escaped(line))
    return result


def escaped(line: str) -> str:
    """The line with stars, bars and trailing underscores that mean themselves, outside of code."""
    parts = _CODE.split(line)
    plain = [re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", part) for part in parts[::2]]
    parts[::2] = plain
    return "".join(parts)
