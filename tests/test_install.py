"""Installing works with and without a C++ compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
