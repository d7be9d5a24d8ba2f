"""Installing works with and without a C++ compiler, and brings torch and numpy alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from code_blocks import code_blocks
from installed import hidden_without, hide, needed_by

ROOT = Path(__file__).parent.parent


OPTIONS = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
NO_COMPILER = {"CXX": "no-such-compiler"}
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")


@pytest.fixture
def source(tmp_path):
    """What a wheel is made of, without what an earlier build left."""
    target = tmp_path / "source"
    built = shutil.ignore_patterns("_native*", "build_failure.txt", "__pycache__")
    shutil.copytree(ROOT / "gomhc", target / "gomhc", ignore=built)
    for name in ("pyproject.toml", "CMakeLists.txt", "Makefile", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def kernels(target, **environment):
    """The kernels that the package in this folder has, and what they compute."""
    go = "gomhc.Orthostochastic(num_streams=4)(torch.zeros(28))[0, 0]"
    code = f"import gomhc, torch; print(*gomhc.kernels.available(), {go})"
    return run("-P", "-c", code, **{"PYTHONPATH": str(target), **environment})


def why_not_native(target):
    code = "import gomhc; print(gomhc.kernels.reasons()['native'])"
    return run("-P", "-c", code, PYTHONPATH=str(target))


def test_without_a_compiler_installing_succeeds_and_torch_takes_over(source, tmp_path):
    run(*OPTIONS, str(tmp_path / "target"), str(source), **NO_COMPILER)
    assert kernels(tmp_path / "target").removeprefix("triton ").startswith("batched plain tensor(1.)")
    reason = why_not_native(tmp_path / "target")
    assert re.match(r"not built: Could not find .*compiler .* CXX: no-such-compiler; ", reason)
    assert "install a C++ compiler (GCC 11, clang 14 or newer) and install gomhc again" in reason


@needs_compiler
def test_a_build_that_fails_leaves_the_first_error_of_the_compiler(source, tmp_path):
    with open(source / "gomhc" / "kernels" / "native" / "tasks.h", "a") as file:
        file.write("this is no C++;\n")
    run(*OPTIONS, str(tmp_path / "target"), str(source))
    assert kernels(tmp_path / "target").removeprefix("triton ").startswith("batched plain tensor(1.)")
    reason = why_not_native(tmp_path / "target")
    assert re.match(r"not built: \S+tasks\.h:\d+:1: error: .*; install a C\+\+ compiler", reason)
    log = Path(re.search(r"or see (.*)$", reason)[1])
    assert "this is no C++;" in log.read_text()


@pytest.mark.skipif(shutil.which("script") is None, reason="needs script, which provides a terminal")
def test_a_build_that_fails_says_so_on_the_terminal(source, tmp_path):
    command = shlex.join([sys.executable, *OPTIONS, str(tmp_path / "target"), str(source)])
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", command, "/dev/null"],
        env={**os.environ, **NO_COMPILER},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gomhc: the C++ library was not built, so the slower torch version runs; see `gomhc doctor`" in done.stdout


@needs_compiler
def test_with_a_compiler_the_library_is_part_of_the_package(source, tmp_path):
    target = tmp_path / "target"
    run(*OPTIONS, str(target), str(source))
    assert kernels(target).startswith("native")
    assert [path.name for path in (target / "gomhc" / "kernels").glob("_native*")] == ["_native.so"]
    templates = ("lab/report/templates/page.html", "lab/report/templates/look.css", "lab/report/templates/page.css")
    data = ("py.typed", "lab/judge/openings.txt", "lab/judge/prompts/user.txt", *templates)
    assert all((target / "gomhc" / name).exists() for name in data)


def test_an_editable_installation_gives_way_to_pythonpath_and_drops_earlier_builds(source, tmp_path):
    """It is a path file, and no finder that comes before sys.path."""
    (source / "gomhc" / "kernels" / "_native.cpython-311-x86_64-linux-gnu.so").write_text("of an earlier version")
    code = "import sys, scikit_build_core.build as build; build.build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=source, env={**os.environ, **NO_COMPILER}, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("gomhc-*-py3-none-*.whl"))) as wheel:
        assert wheel.read("gomhc.pth").decode() == f"{source}\n"
        assert "install({}, {}, {}, [], None" in wheel.read("_editable_skbc_gomhc.py").decode()
        assert not any(name.startswith("gomhc/") for name in wheel.namelist())
    left = {path.name for path in (source / "gomhc" / "kernels").iterdir()}
    assert "build_failure.txt" in left
    assert not any(name.startswith("_native") for name in left)


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is for Linux")
def test_make_wheel_writes_one_wheel_for_every_python_that_needs_no_compiler(source, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["make", "wheel", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"consistent with the\s+following\s+platform tag: \"manylinux_2_", done.stdout)
    (wheel,) = (source / "dist").glob("gomhc-*-py3-none-*linux*.whl")
    target = tmp_path / "target"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel), PATH="")
    assert kernels(target, PATH="").startswith("native")


FIRST_EXAMPLES = [
    "\n".join(code_blocks((ROOT / page).read_text(encoding="utf-8")))
    for page in ("README.md", "docs/getting-started.md", "docs/anywhere.md", "docs/layer.md")
]
RUN_EXAMPLES = "import json, sys; [exec(example, {}) for example in json.loads(sys.argv[1])]"


def test_first_examples_need_torch_and_numpy_alone():
    others = hidden_without(needed_by("torch", "numpy", "gomhc"))
    assert {"jaxtyping", "matplotlib", "rich", "safetensors", "scipy", "transformers"} <= set(others)
    run("-c", hide(others) + RUN_EXAMPLES, json.dumps(FIRST_EXAMPLES))


@pytest.mark.slow
def test_a_fresh_environment_with_the_package_alone_runs_the_first_examples(source, tmp_path):
    run("-m", "venv", str(tmp_path / "venv"))
    python = tmp_path / "venv" / "bin" / "python"
    options = ("--quiet", "--constraint", str(ROOT / "constraints.txt"))
    for command in (("-m", "pip", "install", *options, str(source)), ("-c", RUN_EXAMPLES, json.dumps(FIRST_EXAMPLES))):
        done = subprocess.run([python, *command], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
