"""The README's example runs, and its map of the code is true."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch
from code_blocks import code_blocks

import gomhc
from gomhc.birkhoff.registry import named_settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = code_blocks(README)


@pytest.mark.parametrize("example", EXAMPLES)
def test_readme_example_runs(example):
    torch.manual_seed(0)
    exec(example, {})


def test_there_is_an_example():
    assert EXAMPLES


def test_readme_lists_every_method():
    for key, cls in gomhc.PARAMETRIZATIONS.items():
        assert f"| `{cls.__name__}` (`{key}`) |" in README


def test_every_part_of_the_package_is_on_the_map_and_everything_on_the_map_exists():
    mapped = set(re.findall(r"^\| `(gomhc/[\w/.]*)`", README, flags=re.MULTILINE))
    for path in mapped:
        assert (ROOT / path).exists(), path
    parts = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "gomhc").rglob("__init__.py")}
    assert parts <= mapped


def test_every_module_is_on_the_map():
    table = README[README.index("## Map of the code") :]
    listed = set(re.findall(r"`([\w/]+)`", table))
    whole = ("birkhoff", "cli", "experiments", "exhibits", "statistics")  # one a file, or named as a kind
    for path in (ROOT / "gomhc").rglob("*.py"):
        if path.parent.name not in whole and path.stem not in ("__init__", "__main__", "recipes"):
            assert path.stem in listed, path


def test_every_name_of_a_mixing_is_in_the_readme():
    assert {f"`{name}`" for name in named_settings() if "square" not in name} <= set(re.findall(r"`[\w-]+`", README))


def test_tables_of_times_are_what_the_benchmarks_measured():
    script = runpy.run_path(str(ROOT / "benchmarks" / "write_tables.py"))
    assert README.count("<!-- benchmark: ") == 3
    assert script["with_tables"](README) == README
