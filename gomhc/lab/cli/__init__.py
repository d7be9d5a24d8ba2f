"""The command line: one file per command, and what they print to a terminal.

A command is imported when it is chosen, so that it needs only the packages that it uses.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from inspect import cleandoc
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import rich  # noqa: F401
    import tyro
except ModuleNotFoundError as error:
    sys.exit(f"the gomhc command needs {error.name}; install it with: pip install 'gomhc[cli]'")

from gomhc.lab import plugins
from gomhc.lab.cli import mistakes
from gomhc.lab.cli.terminal import needs
from gomhc.lab.freed_memory import keep_freed_memory

EXTRAS = {
    "version": "cli",
    "doctor": "cli",
    "exactness": "cli",
    "bench": "cli",
    "reproduce": "report",
    "judge": "judge",
    "compare": "report",
    "train": "train",
    "sample": "train",
    "inspect": "cli",
}
"""Name of each command, its file and its function -> the extra that it needs."""
DESCRIPTION = (
    "Exact doubly stochastic maps for multi-stream residual networks. Environment: GOMHC_PLUGINS lists Python files "
    "with mixings and experiments of your own; GOMHC_DEBUG=1 shows tracebacks."
)


def main() -> None:
    """Run the command line; Ctrl-C and mistakes of the user end it with one line instead of a traceback."""
    if sys.stdout is None:  # closed, as by >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe on Windows has no λ: print ? instead of failing
    keep_freed_memory()
    with mistakes.one_line():
        plugins.load()
        arguments = ["version"] if sys.argv[1:] == ["--version"] else sys.argv[1:]
        chosen = _chosen(arguments)
        app = _app({name: _load(name) for name in chosen})
        if "train" in chosen:
            arguments = _load("train").with_recipe(arguments)
        mistakes.parse(partial(_parse, app), arguments)()


def _chosen(arguments: Sequence[str]) -> list[str]:
    """Return the commands to import: the one that is named, or all of them for the completion script of a shell."""
    if arguments and arguments[0].startswith("--tyro-"):
        return list(EXTRAS)
    return [name for name in arguments[:1] if name in EXTRAS]


def _load(name: str) -> ModuleType:
    with needs(EXTRAS[name], f"gomhc {name}"):
        return import_module(f"gomhc.lab.cli.{name}")


def _app(loaded: dict[str, ModuleType]) -> tyro.extras.SubcommandApp:
    """Return the parser, in which commands that are not loaded have a description and no options."""
    app = tyro.extras.SubcommandApp()
    for name in EXTRAS:
        command = _deferred(getattr(loaded[name], name)) if name in loaded else _described(name)
        app.command(name=name)(command)
    return app


def _deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Return the command with its call deferred, so that tyro does not report its errors as wrong options."""
    command.__doc__ = _one_line_each(command.__doc__ or "")  # tyro reads that of the wrapped function

    @wraps(command)
    def parsed(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return partial(command, *args, **kwargs)

    return parsed


def _one_line_each(docstring: str) -> str:
    """Return a docstring with each argument on one line; tyro would keep the ends of indented lines."""
    return re.sub(r"\n {8,}", " ", cleandoc(docstring))


def _described(name: str) -> Callable[[], None]:
    """Return a function with the docstring of a command, which is read from its file without importing it."""

    def described() -> None:
        raise AssertionError(f"gomhc {name} is not loaded")

    functions = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")).body
    command = next(node for node in functions if isinstance(node, ast.FunctionDef) and node.name == name)
    described.__doc__ = ast.get_docstring(command)
    return described


def _parse(app: tyro.extras.SubcommandApp, arguments: Sequence[str]) -> Callable[[], None]:
    return app.cli(prog="gomhc", description=DESCRIPTION, args=arguments)
