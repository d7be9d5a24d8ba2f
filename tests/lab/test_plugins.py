"""A mixing and an experiment from outside of the package are one file each, and the whole laboratory knows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from browser import assert_sound, needs_chromium, open_page

from gomhc.lab.experiments.catalogue import find_experiments
from gomhc.lab.experiments.verdicts import judge
from gomhc.lab.plugins import load
from gomhc.lab.results.record import Record

ROOT = Path(__file__).parents[2]

MIXING = (ROOT / "examples" / "own_mixing.py").read_text(encoding="utf-8")
EXPERIMENT = (ROOT / "examples" / "own_experiment.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("outside")
    files = {"lazy_mixing.py": MIXING, "traces_experiment.py": EXPERIMENT}
    for name, text in files.items():
        (folder / name).write_text(text)
    return os.pathsep.join(str(folder / name) for name in files)


def run(plugins: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "GOMHC_PLUGINS": plugins}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment, cwd=ROOT)


def gomhc(plugins: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(plugins, "-m", "gomhc", *arguments)


@pytest.fixture(scope="module")
def reproduction(plugins: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    done = gomhc(plugins, "reproduce", "--only", "traces", "--jobs", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_an_outside_experiment_is_listed_on_the_command_line(plugins: str) -> None:
    last = gomhc(plugins, "reproduce", "--list").stdout.splitlines()[-1]
    assert last.split() == ["traces", "3", "runs", "Traces", "at", "the", "start"]


def test_an_outside_experiment_has_its_verdict_among_the_claims(reproduction: Path) -> None:
    (claim,) = [c for c in json.loads((reproduction / "claims.json").read_text()) if c["id"] == "trace-large"]
    assert claim["verdict"] == "holds"
    assert claim["value"] == pytest.approx(3.2, abs=1e-3)  # d (1 - leak) of lazy-walk


@needs_chromium
def test_an_outside_experiment_and_mixing_are_on_the_page(reproduction: Path, tmp_path: Path) -> None:
    html = (reproduction / "report.html").read_text()
    section = html[html.index('<section id="traces">') :].partition("</section>")[0]
    assert "Traces of three draws." in section
    assert "lazy-walk" in section
    assert_sound(open_page(html, tmp_path))


def test_records_of_an_outside_experiment_are_kept_until_a_file_of_it_changes(plugins: str, reproduction: Path) -> None:
    again = gomhc(plugins, "reproduce", "--only", "traces", "--out", reproduction)
    assert "3 runs kept, 0 to do" in again.stderr
    mixing = Path(plugins.split(os.pathsep)[0])
    mixing.write_text(MIXING.replace("logits.sigmoid()", "(2 * logits).sigmoid()"))
    try:
        changed = gomhc(plugins, "reproduce", "--only", "traces", "--out", reproduction)
        assert "0 runs kept, 3 to do" in changed.stderr
    finally:
        mixing.write_text(MIXING)


def test_an_outside_mixing_is_in_the_table_of_methods(plugins: str) -> None:
    others_take_long = "import gomhc; from gomhc.lab.cli import main; gomhc.PARAMETRIZATIONS.clear(); main()"
    done = run(plugins, "-c", others_take_long, "exactness", "--seconds", 0)
    assert done.returncode == 0, done.stderr
    assert sum(line.split()[1:3] == ["lazy", "│"] for line in done.stdout.splitlines()) == 4, done.stdout


def test_an_outside_mixing_trains_and_its_run_is_read_again(plugins: str, tmp_path: Path) -> None:
    sizes = ("--num-layers=1", "--num-heads=1", "--num-channels=16", "--context-length=16", "--batch-size=2")
    done = gomhc(plugins, "train", "--mixing", "lazy-walk", "--steps", 2, "--out", tmp_path / "run", *sizes)
    assert done.returncode == 0, done.stderr
    assert gomhc(plugins, "sample", tmp_path / "run", "--tokens", 5).returncode == 0
    forgotten = gomhc("", "sample", tmp_path / "run", "--tokens", 5)
    assert forgotten.returncode == 1
    assert "got 'lazy-walk'" in forgotten.stderr
    assert "GOMHC_PLUGINS" in forgotten.stderr
    assert "Traceback" not in forgotten.stderr


def test_the_tests_of_the_registry_run_over_an_outside_mixing(plugins: str) -> None:
    files = [f"tests/birkhoff/test_{name}.py" for name in ("polytope", "gradients")]
    done = run(plugins, "-m", "pytest", "-q", "-k", "lazy", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 50


@pytest.mark.parametrize("listed", ["nothing.py", "folder", "json.py", "wrong_syntax.py", "wrong_import.py"])
def test_what_is_no_plugin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "json.py").touch()
    (tmp_path / "wrong_syntax.py").write_text("def")
    (tmp_path / "wrong_import.py").write_text("import nothing_of_that_name")
    monkeypatch.setenv("GOMHC_PLUGINS", str(tmp_path / listed))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ValueError, match=rf"^GOMHC_PLUGINS .*{listed}"):
        load()


def test_a_mistake_in_a_plugin_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(MIXING.replace('"lazy"', '"go"'))
    done = gomhc(str(tmp_path / "wrong.py"), "reproduce", "--list")
    assert done.returncode == 1
    assert done.stderr.startswith("error: GOMHC_PLUGINS lists ")
    assert "the key 'go' of Lazy is taken by gomhc.birkhoff.orthostochastic.Orthostochastic" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def module_of(name: str, text: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(text, vars(module))
    return module


def test_two_experiments_of_one_name_are_refused() -> None:
    modules = [module_of(name, EXPERIMENT) for name in ("once", "twice")]
    with pytest.raises(ValueError, match="two experiments have the name 'traces', in once and twice; rename one"):
        find_experiments(modules)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('    name = "traces"\n', "", "the name of the experiment outside.Traces must be text, got None"),
        ('name = "traces"', 'name = "../traces"', "lower-case letters, digits and single hyphens, got '../traces'"),
        ('title = "Traces at the start"', "title = 3", "the title of the experiment outside.Traces must be text"),
        ("def findings", "def found", "abstract"),
    ],
)
def test_an_incomplete_experiment_is_refused(before: str, after: str, message: str) -> None:
    assert before in EXPERIMENT
    with pytest.raises((ValueError, TypeError), match=message):
        find_experiments([module_of("outside", EXPERIMENT.replace(before, after))])


def test_a_finding_for_no_claim_is_refused() -> None:
    text = EXPERIMENT.replace('return {"trace-large"', 'return {"trace-lrage"')
    (experiment,) = find_experiments([module_of("outside", text)])
    record = Record(
        experiment="traces", run="TraceRun", configuration={}, full_size=True, key="", code_version="", commit="",
        versions={}, device="", wall_time=0.0, metrics={"traces": [3.5]},
    )  # fmt: skip
    with pytest.raises(ValueError, match="traces has findings for trace-lrage, but its claims have no such id"):
        judge([experiment], {"traces": [record]})
