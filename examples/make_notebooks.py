"""Write notebooks from the examples that are divided into cells (`# %%`).

python examples/make_notebooks.py      # needs nbformat: pip install nbformat
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

FOLDER = Path(__file__).parent
NAMES = ("learn_a_permutation", "mixing_tanks")


def notebook(source: str) -> nbformat.NotebookNode:
    """The cells of a Python file: those under `# %% [markdown]` are text."""
    cells = []
    for kind, text in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", source, flags=re.DOTALL | re.MULTILINE):
        if kind:
            cell = new_markdown_cell(re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE))
        else:
            cell = new_code_cell(text.strip())
        cell["id"] = f"cell-{len(cells)}"  # or it would be random
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return new_notebook(cells=cells, metadata=kernel)


def main() -> None:
    """Write them beside their sources."""
    for name in NAMES:
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        nbformat.write(notebook(source), FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
