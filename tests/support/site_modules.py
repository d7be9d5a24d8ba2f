"""Scripts and modules that stand beside the package and are not installed with it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent


def site_module(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    return script(f"docs/{name}.py")


def script(path: str) -> ModuleType:
    """A Python file of the repository as a module."""
    docs = str(ROOT / "docs")
    if docs not in sys.path:
        sys.path.append(docs)
    file = ROOT / path
    specification = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded
