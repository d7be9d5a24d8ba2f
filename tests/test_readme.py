"""README is short, its example runs, and its table of mixings agrees with the registry."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from code_blocks import code_blocks
from site_modules import site_module

import gomhc

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = code_blocks(README)
MOST_BYTES = 9_000
mixing_table = site_module("mixing_table")


@pytest.mark.parametrize("example", EXAMPLES)
def test_readme_example_runs(example):
    torch.manual_seed(0)
    exec(example, {})


def test_there_is_an_example():
    assert EXAMPLES


def test_readme_can_be_read_in_two_minutes():
    assert len(README.encode()) <= MOST_BYTES


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).exists(), link


def test_table_lists_every_mixing_of_the_package():
    assert set(mixing_table.ENTRIES) == {
        key for key, cls in gomhc.PARAMETRIZATIONS.items() if cls.__module__.startswith("gomhc.")
    }
    assert all(f"| `{key}` |" in README for key in mixing_table.ENTRIES)


@pytest.mark.parametrize("num_streams", [2, 4, 5])
@pytest.mark.parametrize("key", mixing_table.ENTRIES)
def test_table_counts_free_reals_as_the_registry_does(key, num_streams):
    mixing = gomhc.PARAMETRIZATIONS[key](num_streams=num_streams)
    formula = mixing_table.ENTRIES[key].free_reals
    if key == "kronecker":
        assert formula == "sum over factors"
        return
    letters = {"d": num_streams, "s": getattr(mixing, "expressivity", None)}
    if key == "average":
        letters = {"k": mixing.num_terms, "p": mixing.term.num_logits}
    assert value(formula, letters) == mixing.num_logits


def value(formula: str, letters: dict[str, int | None]) -> float:
    """The number that a formula such as `ds(ds − 1)/2` means."""
    text = formula.replace("d!", "factorial(d)").replace("−", "-").replace("²", "**2").replace("ds", "(d*s)")
    text = re.sub(r"(\b[dsk]|\))\(", r"\1*(", text)
    return eval(text, {"factorial": math.factorial, **letters})
