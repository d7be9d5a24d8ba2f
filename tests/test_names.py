"""Every module and every public class of the package has a name of its own, so that a name says which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "gomhc"
COMMANDS = PACKAGE / "lab" / "cli"
"""Files of the command line are named after their commands."""


def twins(places: list[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that several files have, and these files."""
    files = defaultdict(list)
    for name, file in places:
        files[name].append(str(file.relative_to(PACKAGE.parent)))
    return {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}


def public_classes(file: Path) -> list[str]:
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    return [node.name for node in statements if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_no_two_modules_share_a_name() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if COMMANDS not in file.parents]
    modules = [file for file in files if file.stem not in ("__init__", "__main__")]
    assert len(modules) > 50
    assert twins([(file.stem, file) for file in modules]) == {}


def test_no_two_public_classes_share_a_name() -> None:
    classes = [(name, file) for file in PACKAGE.rglob("*.py") for name in public_classes(file)]
    assert len(classes) > 50
    assert twins(classes) == {}
