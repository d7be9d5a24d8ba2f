"""`import gomhc` teaches transformers' AutoConfig the types of changed models (`gomhc_llama`), without importing it.

Whichever is imported first: where transformers comes later, this waits for the module that has the table of types. The
classes of a type are made when it is first asked for.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PREFIX = "gomhc_"
TABLE = "transformers.models.auto.configuration_auto"
"""The module of transformers that has the table."""


class TypesFromOutside(dict[str, Any]):
    """The part of AutoConfig's table that others fill, in which every type of ours is found, too."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.CONFIG_MAPPING._extra_content)
        self.module = module

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (
            isinstance(key, str) and key.startswith(PREFIX) and key.removeprefix(PREFIX) in self.module.CONFIG_MAPPING
        )

    def __missing__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        from gomhc.integrations.checkpoints import changed_config_class

        return changed_config_class(key.removeprefix(PREFIX))


class TableFinder(MetaPathFinder):
    """Finds the module of the table as the others do, and has it filled once it is executed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != TABLE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_fill(module: ModuleType) -> None:
                execute(module)
                _fill(module)

            spec.loader.exec_module = execute_and_fill  # type: ignore[method-assign]
        return spec


def teach() -> None:
    """Now, or when transformers is imported."""
    if TABLE in sys.modules:
        _fill(sys.modules[TABLE])
    elif not any(isinstance(finder, TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TableFinder())


def _fill(module: ModuleType) -> None:
    # A private name. Without it, `gomhc.from_pretrained` still loads, and the Auto classes know a type after that.
    if hasattr(module.CONFIG_MAPPING, "_extra_content"):
        module.CONFIG_MAPPING._extra_content = TypesFromOutside(module)
