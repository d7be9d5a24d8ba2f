"""Places in README.md and on the site that scripts fill: `<!-- KIND: NAME -->` to `<!-- end of KIND -->`.

`make tables` fills all of them. A test fails where a place does not hold what its script writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""Files that may have places."""


def filled(text: str, kind: str, write: Callable[[str], str]) -> str:
    """Return the text with every place of this kind filled by `write(name)`."""

    def place(match: re.Match[str]) -> str:
        return f"{match[1]}{write(match[2])}\n{match[3]}"

    return _pattern(kind).sub(place, text)


def names(text: str, kind: str) -> list[str]:
    """Return the names of the places of this kind."""
    return [match[2] for match in _pattern(kind).finditer(text)]


def fill(kind: str, write: Callable[[str], str]) -> None:
    """Fill the places of this kind in all pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := filled(text, kind, write)) != text:
            page.write_text(new, encoding="utf-8")


def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {kind}: ([\w-]+) -->\n).*?(<!-- end of {kind} -->)", re.DOTALL)
