"""Which packages a requirement brings, and Python code that hides all others."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def extras() -> dict[str, list[str]]:
    """Name of each extra -> the requirements that pyproject.toml lists."""
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def brought_by(*names: str) -> set[str]:
    """Return the distributions that `pip install 'gomhc[NAMES]'` brings, torch's and numpy's included."""
    wanted = [requirement for name in names for requirement in extras()[name]]
    own = [re.findall(r"[\w-]+", requirement)[1:] for requirement in wanted if requirement.startswith("gomhc[")]
    others = [_name(requirement) for requirement in wanted if not requirement.startswith("gomhc[")]
    return needed_by("torch", "numpy", "gomhc", *others).union(*(brought_by(*nested) for nested in own))


def needed_by(*names: str) -> set[str]:
    """The installed distributions that these require, themselves included; without extras."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = _normal(waiting.pop())
        if name in needed:
            continue
        needed.add(name)
        try:
            wanted = [text for text in requires(name) or () if "extra ==" not in text]
        except PackageNotFoundError:  # on another platform it would be needed
            continue
        waiting += [_name(text) for text in wanted]
    return needed


def hidden_without(allowed: set[str]) -> list[str]:
    """The installed modules that belong to none of these distributions."""
    kept = {"sphinx"}  # scipy takes a hidden one for a loaded one
    setuptools = find_spec("setuptools")
    if "setuptools" in allowed and setuptools is not None:  # it carries copies, which torch.utils.benchmark gets to see
        kept |= {path.stem for path in (Path(setuptools.origin).parent / "_vendor").iterdir()}
    return [
        name
        for name, owners in packages_distributions().items()
        if name not in kept and not {_normal(owner) for owner in owners} & allowed
    ]


def hide(modules: list[str]) -> str:
    """Code after which importing any of these modules raises ModuleNotFoundError."""
    return f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"


def _name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0]


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")
