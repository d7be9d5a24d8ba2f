"""What all tests share.

Shapes and dtypes in gomhc's signatures are checked while they run. Tests marked `unchecked` (torch.compile cannot trace
those checks; wrong types must meet gomhc's own errors) are left to a second run without them: `pytest --unchecked`.
`make test` does both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton: there need not be a GPU


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unchecked", action="store_true", help="run the tests marked `unchecked`, and only them")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would the commands that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "unchecked: runs without shape checks, by `pytest --unchecked`")
    if not config.getoption("--unchecked"):
        install_import_hook("gomhc", "shapes.check")  # before any test imports gomhc
    from gomhc.lab import plugins

    plugins.load()  # so that tests of the registry run over mixings from outside too


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("--unchecked"))
    others = [item for item in items if (item.get_closest_marker("unchecked") is not None) != wanted]
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="module")
def token_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of tokens for the tests of one file."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOMHC_CACHE", str(folder))
        yield folder


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
