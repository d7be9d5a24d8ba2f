"""A hash of the code that the numbers of an experiment depend on.

Its own file and every file of gomhc that this one imports, directly or not, is read as Python reads it: comments,
docstrings and layout do not count. Classes derived from `Experiment` (claims, findings, figures, which runs there are)
do not count either, because a record's configuration already says which run it is of, and nor do modules of exhibits.
So wording a finding, drawing another figure or changing another experiment repeats nothing, and changing a kernel
repeats what uses it. C++ sources always count, and so do all plugins for an experiment that is one. What other packages
do is not in the key: their versions are in the record.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

from gomhc.lab import plugins

PACKAGE = Path(__file__).parents[2]
NOT_NUMERICAL = (
    "gomhc.lab.exhibits",
    "gomhc.lab.experiments.experiment",
    "gomhc.lab.files",
    "gomhc.lab.lock",
    "gomhc.lab.results",
    "gomhc.version",
)
"""Modules that experiments import and that no number depends on."""


@cache
def code_version(module: str) -> str:
    """Hash of the sources behind the numbers of the experiment in this module, `gomhc.lab.experiments.fig6`, say."""
    digest = hashlib.sha256()
    for name in sorted(sources(module)):
        digest.update(f"{name}\n{_meaning(_file(name))}\n".encode())
    if not _is_own(module):
        for path in plugins.files():
            digest.update(_meaning(path).encode())
    for path in sorted((PACKAGE / "kernels" / "native").glob("*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def forget() -> None:
    """Read the sources anew next time."""
    code_version.cache_clear()
    _meaning.cache_clear()


def sources(module: str) -> frozenset[str]:
    """The modules of gomhc whose code counts in the version of this one."""
    counted: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in counted and not name.startswith(NOT_NUMERICAL):
            counted.add(name)
            waiting.extend(_imports(name))
    return frozenset(counted)


def _imports(module: str) -> set[str]:
    """Modules of gomhc that this one imports; a name that is no module comes from the package it is imported from."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(_file(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if _exists(name)}
            imported |= modules | ({node.module} if modules != names else set())
    return {name for name in imported if _is_own(name)}


@cache
def _meaning(path: Path) -> str:
    """The file as Python reads it, without what no number depends on."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not _is_experiment(node) and not _imports_nothing_numerical(node)]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_remark(item)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_experiment(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "Experiment" for base in node.bases
    )


def _imports_nothing_numerical(node: ast.stmt) -> bool:
    """Whether it imports for figures, findings or type checkers only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith((*NOT_NUMERICAL, "typing"))


def _is_remark(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_own(module: str) -> bool:
    return module.split(".")[0] == PACKAGE.name


def _file(module: str) -> Path:
    if not _is_own(module):
        return next(path for path in plugins.files() if path.stem == module)
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _exists(module: str) -> bool:
    return _is_own(module) and _file(module).is_file()
