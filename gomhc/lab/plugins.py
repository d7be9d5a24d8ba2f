"""Mixings and experiments from outside the package, in Python files that the variable GOMHC_PLUGINS lists.

    GOMHC_PLUGINS=own_mixing.py:own_experiment.py gomhc reproduce

A file registers a mixing with `gomhc.register` and defines an experiment as a class derived from `Experiment`. Every
command, every worker process and the test suite load the files when they start. They run with your rights, as any
module that Python imports does.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

VARIABLE = "GOMHC_PLUGINS"


def files() -> list[Path]:
    """The files that the variable lists, separated as in PATH."""
    listed = os.environ.get(VARIABLE, "").split(os.pathsep)
    return list(dict.fromkeys(Path(path).resolve() for path in listed if path))


def load() -> list[ModuleType]:
    """Import each file once; worker processes find the modules by the same names."""
    return [_load(path) for path in files()]


@cache
def _load(path: Path) -> ModuleType:
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"{VARIABLE} must list Python files, separated by {os.pathsep!r}, got {path}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        module = import_module(path.stem)
    except Exception as error:
        raise ValueError(f"{VARIABLE} lists {path}, which raises {type(error).__name__}: {error}") from error
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise ValueError(f"{VARIABLE} lists {path}, but another module is called {path.stem}; rename the file")
    return module
