"""What all tests share.

Shapes and dtypes in gomhc's signatures are checked while they run. torch.compile cannot trace those checks, so tests
marked `compiled` are left to a second run without them: `pytest --compiled`. `make test` does both.
"""

from __future__ import annotations

import pytest
import torch
from jaxtyping import install_import_hook


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", action="store_true", help="run the tests marked `compiled`, and only them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "compiled: goes through torch.compile; needs `pytest --compiled`")
    if not config.getoption("--compiled"):
        install_import_hook("gomhc", "beartype.beartype")  # before any test imports gomhc


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("--compiled"))
    others = [item for item in items if (item.get_closest_marker("compiled") is not None) != wanted]
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=others)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
