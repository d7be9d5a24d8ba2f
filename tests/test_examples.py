"""The examples run: with few steps here, and as they are behind `slow`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("make_notebooks", "own_experiment"))
NEEDS = {"upcycle_smollm": "transformers", "learn_a_permutation": "matplotlib"}
each_script = pytest.mark.parametrize("name", SCRIPTS)


def run(file: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def skip_without_packages(name: str) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")


def shortened(text: str) -> str:
    """The code of an example with two steps and little data."""
    text = re.sub(r"^(STEPS.*?= )\d+", r"\g<1>2", text, flags=re.MULTILINE)
    return text.replace("NOISE, MINUTES = 6, 5, 0.05, 1440", "NOISE, MINUTES = 6, 5, 0.05, 20").replace(
        "stories(2000)", "stories(50)"
    )


def losses(printed: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss (\d+\.\d+)", printed)]


@each_script
def test_an_example_runs_with_few_steps(name: str, tmp_path: Path) -> None:
    skip_without_packages(name)
    file = tmp_path / f"{name}.py"
    file.write_text(shortened((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")), encoding="utf-8")
    assert run(file)


@pytest.mark.slow
@each_script
def test_an_example_runs_as_it_is(name: str) -> None:
    """Slow: about a minute each."""
    skip_without_packages(name)
    printed = run(EXAMPLES / f"{name}.py")
    if name.startswith(("nanogpt", "upcycle")):
        assert losses(printed)[-1] < losses(printed)[0] - 0.5


def test_nanogpt_with_streams_differs_from_the_plain_one_by_few_lines() -> None:
    plain, streams = ((EXAMPLES / f"nanogpt_{kind}.py").read_text().splitlines() for kind in ("plain", "streams"))
    assert len(set(streams) - set(plain)) <= 14


@pytest.mark.parametrize("name", ["learn_a_permutation", "mixing_tanks"])
def test_a_notebook_holds_what_its_source_does(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    text = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert len(code) >= 4
    assert len(text) >= 3
    marks = re.compile(r"^# %%.*\n", flags=re.MULTILINE)
    own = "\n".join(line for line in marks.sub("", source).splitlines() if line.strip() and not line.startswith("#"))
    assert (
        "\n".join(line for cell in code for line in cell.splitlines() if line.strip() and not line.startswith("#"))
        == own
    )
    assert "outputs" not in json.dumps(text)


@pytest.mark.parametrize("name", ["learn_a_permutation", "mixing_tanks"])
def test_a_notebook_runs_with_few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = shortened(cell.source)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert any(cell.get("outputs") for cell in notebook.cells)
