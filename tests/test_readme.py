"""The README's example runs, and its map of the code is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import gomhc

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


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
    parts = {f"gomhc/{path.name}/" for path in (ROOT / "gomhc").iterdir() if (path / "__init__.py").exists()}
    assert parts <= mapped
