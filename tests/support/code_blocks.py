"""Python blocks of Markdown text."""

from __future__ import annotations

import re


def code_blocks(text: str) -> list[str]:
    """The fenced blocks that say they are Python, in order."""
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
