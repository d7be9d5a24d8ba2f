"""A hash of the code that the numbers of an experiment depend on.

Its own file and every file of gomhc that this one imports, directly or not, is read as Python reads it: comments,
docstrings and layout do not count. Classes derived from `Experiment` (claims, findings, figures, which runs there are)
do not count either, because a record's configuration already says which run it is of, and nor do modules of exhibits.
So wording a finding, drawing another figure or changing another experiment repeats nothing, and changing a kernel
repeats what uses it. C++ sources always count. What other packages do is not in the key: their versions are in the
record.

For an experiment from outside gomhc, the files beside it that it imports count too, and so do the plugins that
register a mixing.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

from gomhc.lab import plugins

PACKAGE = Path(__file__).parents[2]
NOT_NUMERICAL = (
    "gomhc.lab.comparison",
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
        digest.update(f"{name}\n{_meaning(_existing_file(name))}\n".encode())
    for path in sorted((PACKAGE / "kernels" / "native").glob("*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def forget() -> None:
    """Read the sources anew next time."""
    code_version.cache_clear()
    _meaning.cache_clear()


def sources(module: str) -> frozenset[str]:
    """The modules whose code counts in the version of this one."""
    counted: set[str] = set()
    waiting = [module] if module.startswith(f"{PACKAGE.name}.") else [module, *_registering_plugins()]
    while waiting:
        name = waiting.pop()
        if name not in counted and not name.startswith(NOT_NUMERICAL):
            counted.add(name)
            waiting.extend(_imports(name))
    return frozenset(counted)


def _imports(module: str) -> set[str]:
    """Modules with a file here that this one imports; a name that is no module comes from the package it is in."""
    imported: set[str] = set()
    for node in ast.walk(_tree(_existing_file(module))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if _file(name) is not None}
            imported |= modules | ({node.module} if modules != names else set())
    return {name for name in imported if _file(name) is not None}


@cache
def _meaning(path: Path) -> str:
    """The file as Python reads it, without what no number depends on."""
    tree = _tree(path)
    others = [node for node in tree.body if not _is_experiment(node)]
    used = {node.id for other in others for node in ast.walk(other) if isinstance(node, ast.Name)}
    tree.body = [node for node in tree.body if not _is_for_the_page(node, used)]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_remark(item)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_for_the_page(node: ast.stmt, used: set[str]) -> bool:
    """Whether it is for claims, figures or type checkers only: an `Experiment` that no other code uses, or imports."""
    if isinstance(node, ast.ClassDef):
        return _is_experiment(node) and node.name not in used
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith((*NOT_NUMERICAL, "typing"))


def _is_experiment(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "Experiment" for base in node.bases
    )


def _is_remark(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _registering_plugins() -> list[str]:
    """Plugins that call `register`: an experiment from outside may use their mixings by name."""

    def registers(path: Path) -> bool:
        nodes = ast.walk(_tree(path))
        return any(getattr(node, "attr", getattr(node, "id", None)) == "register" for node in nodes)

    return [path.stem for path in plugins.files() if registers(path)]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _existing_file(module: str) -> Path:
    path = _file(module)
    assert path is not None, module
    return path


def _file(module: str) -> Path | None:
    """The source of a module of gomhc or of one beside a plugin; None for what other packages have."""
    first, *rest = module.split(".")
    folders = [PACKAGE.parent] if first == PACKAGE.name else [path.parent for path in plugins.files()]
    places = [folder.joinpath(first, *rest) for folder in folders]
    candidates = [path for place in places for path in (place / "__init__.py", place.with_suffix(".py"))]
    return next((path for path in candidates if path.is_file()), None)
