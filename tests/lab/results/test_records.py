"""Records are whole or not there, and are found again as long as nothing that they depend on has changed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace

import pytest
import torch

from gomhc.birkhoff import PARAMETRIZATIONS
from gomhc.lab.experiments import schedule
from gomhc.lab.experiments.catalogue import all_experiments
from gomhc.lab.experiments.experiment import Experiment, Run
from gomhc.lab.files import Damaged, seal, unseal
from gomhc.lab.results import code_version
from gomhc.lab.results.record import Store, only, select


@dataclass(frozen=True, kw_only=True)
class Half(Run):
    number: float
    seed: int = 0

    @property
    def full_size(self):
        return self.number > 1

    def execute(self):
        if self.number < 0:
            raise ValueError("a negative number")
        return {"half": self.number / 2, "infinite": [float("inf"), 1.0]}


class Halves(Experiment):
    name = "halves"
    title = "Halves"
    paper = "Nothing."

    def runs(self, scale):
        return [Half(number=1.0), Half(number=2.0)]

    def findings(self, records):
        return {}


def task(number):
    return schedule.ScheduledRun("halves", Half(number=number), "version")


def test_record_that_is_kept_is_loaded_and_not_made_again(tmp_path):
    store = Store(tmp_path)
    (done,) = schedule.perform([task(3.0)], store, jobs=1)
    planned = schedule.plan([task(3.0), task(4.0)], store)
    assert planned.kept == {task(3.0): done.record}
    assert planned.to_do == [task(4.0)]
    assert done.record.metrics == {"half": 1.5, "infinite": [None, 1.0]}
    assert done.record.full_size
    assert done.record.seed == 0


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: "",
        lambda text: "{",
        lambda text: "[]",
        lambda text: '{"experiment": "halves"}',
        lambda text: "\x00\xff",
        lambda text: text.replace('"half": 1.5', '"half": 1.6'),
        lambda text: text.replace('"half": 1.5, "infinite": [null, 1.0]', ""),
        lambda text: seal({**unseal(text.encode()), "metrics": None}),
        lambda text: text[:-2],
    ],
)
def test_damaged_record_is_named_and_made_again(tmp_path, harm):
    store = Store(tmp_path)
    list(schedule.perform([task(3.0)], store, jobs=1))
    path = store.path("halves", task(3.0).key)
    text = path.read_text()
    assert harm(text) != text
    path.write_text(harm(text), encoding="latin-1")
    planned = schedule.plan([task(3.0)], store)
    assert planned.to_do == [task(3.0)]
    assert str(path) in planned.damaged[0]
    list(schedule.perform(planned.to_do, store, jobs=1))
    assert schedule.plan([task(3.0)], store).kept


def test_record_whose_numbers_were_moved_to_another_configuration_is_damaged(tmp_path):
    store = Store(tmp_path)
    list(schedule.perform([task(3.0)], store, jobs=1))
    path = store.path("halves", task(3.0).key)
    values = unseal(path.read_bytes())
    path.write_text(seal({**values, "configuration": {"number": 5.0, "seed": 0}}))
    with pytest.raises(Damaged, match="another record"):
        store.load("halves", task(3.0).key)


def test_run_that_fails_is_told_and_does_not_stop_the_others(tmp_path):
    done = list(schedule.perform([task(-1.0), task(2.0)], Store(tmp_path), jobs=1))
    failed, well = sorted(done, key=lambda item: item.task.run.number)
    assert failed.record is None
    assert "a negative number" in failed.error
    assert well.record is not None


def test_run_has_the_threads_that_it_asks_for(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Threads(Run):
        wanted: int

        @property
        def num_threads(self):
            return self.wanted

        def execute(self):
            return {"threads": torch.get_num_threads()}

    before = torch.get_num_threads()
    (done,) = schedule.perform(
        [schedule.ScheduledRun("threads", Threads(wanted=3), "version")], Store(tmp_path), jobs=1
    )
    assert done.record.metrics == {"threads": 3}
    assert done.record.device.endswith(", 3 threads")
    assert torch.get_num_threads() == before


def test_what_killed_writers_left_is_removed(tmp_path):
    store = Store(tmp_path)
    list(schedule.perform([task(3.0)], store, jobs=1))
    (tmp_path / "halves" / ".key.json.a1b2c3d4").write_text("half")
    store.remove_unfinished()
    assert [path.suffix for path in (tmp_path / "halves").iterdir()] == [".json"]
    assert schedule.plan([task(3.0)], store).kept


def test_nothing_half_written_is_left_when_writing_fails(tmp_path, monkeypatch):
    store = Store(tmp_path)
    (done,) = schedule.perform([task(3.0)], store, jobs=1)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.save(replace(done.record, wall_time=7.0))
    assert store.load("halves", done.record.key) == done.record
    assert len(list((tmp_path / "halves").iterdir())) == 1


def test_experiment_is_complete_only_when_all_its_runs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "code_version", lambda module: "version")
    store = Store(tmp_path)
    list(schedule.perform([task(1.0)], store, jobs=1))
    assert schedule.complete([Halves()], "quick", store) == {}
    list(schedule.perform([task(2.0)], store, jobs=1))
    assert len(schedule.complete([Halves()], "quick", store)["halves"]) == 2


def test_records_are_selected_by_their_configuration(tmp_path):
    records = [done.record for done in schedule.perform([task(1.0), task(2.0)], Store(tmp_path), jobs=1)]
    assert [record.metrics["half"] for record in select(records, "Half", number=2.0)] == [1.0]
    assert only(records, number=1.0).metrics["half"] == 0.5
    with pytest.raises(LookupError, match="got 2"):
        only(records)


def test_every_run_is_keyed_by_what_json_holds():
    for scale in ("quick", "laptop", "paper"):
        tasks = schedule.tasks_of(all_experiments(), scale)
        assert len({(task.experiment, task.key) for task in tasks}) == len(tasks)
        for each in tasks:
            assert each.run.cost >= 0
            json.dumps(each.run.configuration, allow_nan=False)


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the package whose files a test may change."""
    copy = tmp_path / "gomhc"
    shutil.copytree(code_version.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr(code_version, "PACKAGE", copy)
    code_version.forget()
    yield copy
    code_version.forget()


@pytest.mark.parametrize(
    ("file", "before", "after", "changes"),
    [
        ("lab/experiments/depth.py", "DEPTH = 32", "DEPTH = 33", True),
        ("birkhoff/samplers.py", "torch.linalg.qr(gaussian).Q", "gaussian", True),
        ("kernels/native/rotation.h", "constexpr int TILE", "constexpr short TILE", True),
        ("lab/experiments/depth.py", "DEPTH = 32", "DEPTH = 32  # layers", False),
        ("lab/experiments/depth.py", '"""How fast products', '"""How soon products', False),
        ("lab/experiments/depth.py", "after 16 layers, s = 1", "at depth 16 with s = 1", False),
        ("lab/experiments/depth.py", "Rule(at_most=1e-2)", "Rule(at_most=1e-3)", False),
        ("lab/experiments/depth.py", "matrices in the product", "depth", False),
        ("lab/experiments/depth.py", "import line, new_figure", "import INK, line, new_figure", False),
        ("lab/exhibits/style.py", "#33BBEE", "#33BBEF", False),
        ("lab/experiments/counts.py", "LARGEST_LITE = 8", "LARGEST_LITE = 7", False),
        ("lab/report/page.py", "import base64", "import base64, os", False),
        ("lab/results/record.py", "import hashlib", "import hashlib, re", False),
    ],
)
def test_version_changes_with_what_numbers_depend_on_and_with_nothing_else(sources, file, before, after, changes):
    module = "gomhc.lab.experiments.depth"
    version = code_version.code_version(module)
    path = sources / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    code_version.forget()
    assert (code_version.code_version(module) != version) == changes


@pytest.mark.parametrize("experiment", all_experiments(), ids=lambda experiment: experiment.name)
def test_whoever_looks_a_mixing_up_depends_on_every_method(experiment):
    counted = code_version.sources(type(experiment).__module__)
    if "gomhc.birkhoff.registry" in counted:
        methods = {cls.__module__ for cls in PARAMETRIZATIONS.values()}
        assert {name for name in methods if name.startswith("gomhc.birkhoff.")} <= counted


def test_a_class_of_claims_and_figures_counts_where_a_run_uses_it(tmp_path, monkeypatch):
    path = tmp_path / "outside.py"
    monkeypatch.setenv("GOMHC_PLUGINS", str(path))
    versions = []
    for limit in (1, 2):
        for user in ("", "Large.limit"):
            path.write_text(f"class Large(Experiment):\n    limit = {limit}\nprint({user})\n")
            code_version.forget()
            versions.append(code_version.code_version("outside"))
    assert versions[0] == versions[2]  # nobody uses it
    assert versions[1] != versions[3]


def test_a_plugin_depends_on_what_it_imports_and_on_mixings_and_not_on_its_neighbours(tmp_path, monkeypatch):
    files = {"own": "import helper\n", "helper": "x = 1\n", "mixing": "gomhc.register(1)\n", "neighbour": "y = 1\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)

    def version(*plugins):
        monkeypatch.setenv("GOMHC_PLUGINS", os.pathsep.join(str(tmp_path / f"{name}.py") for name in plugins))
        code_version.forget()
        return code_version.code_version("own")

    first = version("own", "mixing")
    assert version("neighbour", "mixing", "own", "own") == first
    assert version("own") != first
    (tmp_path / "helper.py").write_text("x = 2\n")
    assert version("own", "mixing") != first
