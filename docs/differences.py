"""A directive that shows how one file differs from another, without their places on this machine.

```{difference} ../examples/nanogpt_plain.py ../examples/nanogpt_streams.py
```
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Difference(SphinxDirective):
    """The lines that differ, each with three around it; the docstring at the top of each file is left out."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Compare the files, whose paths are relative to the page."""
        files = [Path(self.env.relfn2path(argument)[1]) for argument in self.arguments]
        for file in files:
            self.env.note_dependency(str(file))
        before, after = ([f"{line}\n" for line in without_docstring(file)] for file in files)
        _, _, *lines = unified_diff(before, after)
        text = "".join("\n" if line.startswith("@@") else line for line in lines).strip("\n")
        return [nodes.literal_block(text, text, language="diff")]


def without_docstring(file: Path) -> list[str]:
    """The lines of a Python file behind its docstring."""
    _, _, code = file.read_text(encoding="utf-8").split('"""', maxsplit=2)
    return code.strip("\n").splitlines()
