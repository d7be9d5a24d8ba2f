"""Installing works with and without a C++ compiler, and brings torch and numpy alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import hidden_without, hide, needed_by

ROOT = Path(__file__).parent.parent


@pytest.fixture
def source(tmp_path):
    """What a wheel is made of, without what an earlier build left."""
    target = tmp_path / "source"
    shutil.copytree(ROOT / "gomhc", target / "gomhc", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def install(source, target, **environment):
    """Install into `target`, and say which kernels the package then has and what they compute."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target")
    run("-m", "pip", "install", *options, str(target), str(source), **environment)
    go = "gomhc.Orthostochastic(num_streams=4)(torch.zeros(28))[0, 0]"
    return run("-P", "-c", f"import gomhc, torch; print(*gomhc.kernels.available(), {go})", PYTHONPATH=str(target))


def test_without_a_compiler_installing_succeeds_and_torch_takes_over(source, tmp_path):
    missing = {"CC": "no-such-compiler", "CXX": "no-such-compiler", "LDSHARED": "no-such-compiler"}
    assert install(source, tmp_path / "target", **missing).startswith("batched plain tensor(1.)")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_with_a_compiler_the_library_is_part_of_the_package(source, tmp_path):
    assert install(source, tmp_path / "target").startswith("native")


FIRST_EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[:3]
RUN_EXAMPLES = "import json, sys; [exec(example, {}) for example in json.loads(sys.argv[1])]"


def test_first_three_examples_of_the_readme_need_torch_and_numpy_alone():
    others = hidden_without(needed_by("torch", "numpy", "gomhc"))
    assert {"jaxtyping", "matplotlib", "rich", "safetensors", "scipy", "transformers"} <= set(others)
    run("-c", hide(others) + RUN_EXAMPLES, json.dumps(FIRST_EXAMPLES))


@pytest.mark.slow
def test_a_fresh_environment_with_the_package_alone_runs_the_first_three_examples(source, tmp_path):
    run("-m", "venv", str(tmp_path / "venv"))
    python = tmp_path / "venv" / "bin" / "python"
    options = ("--quiet", "--constraint", str(ROOT / "constraints.txt"))
    for command in (("-m", "pip", "install", *options, str(source)), ("-c", RUN_EXAMPLES, json.dumps(FIRST_EXAMPLES))):
        done = subprocess.run([python, *command], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
