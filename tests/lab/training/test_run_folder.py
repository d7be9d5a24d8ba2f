"""The folder of a run belongs to one process at a time, and nothing that is found in it is trusted."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import small_recipe

import gomhc
from gomhc.birkhoff import as_mixing
from gomhc.lab.files import Damaged, seal, sha256, unseal
from gomhc.lab.lock import InUse, lock
from gomhc.lab.training import Execution, Recipe, checkpoint, load_run, resume, train
from gomhc.lab.training.distributed import World
from gomhc.lab.training.history import FILE, read
from gomhc.models import GPT, GPTConfig

CPU = Execution(device="cpu")
pytestmark = pytest.mark.usefixtures("token_cache")
STEPS = 6


@pytest.fixture(scope="module")
def whole(token_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the checkpoints of steps 2, 4 and 6."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = small_recipe(folder / "corpus.txt", steps=STEPS)
    train(recipe, folder / "run", CPU)
    return folder / "run"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def started(run: Path) -> Path:
    """The run as it was after four steps, with records that came later."""
    shutil.rmtree(checkpoint.folder_of(run, STEPS))
    return run


def newest(run: Path) -> Path:
    return checkpoint.folder_of(run, checkpoint.steps(run)[-1])


def metrics(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in read(run)]


def weights(run: Path) -> bytes:
    return (newest(run) / checkpoint.WEIGHTS).read_bytes()


def assert_finishes_as(run: Path, whole: Path) -> None:
    assert resume(run, CPU) == STEPS
    assert metrics(run) == metrics(whole)
    assert weights(run) == weights(whole)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the state of a checkpoint as somebody could who makes the checksum fit."""
    state = unseal((folder / checkpoint.STATE).read_bytes())
    change(state)
    (folder / checkpoint.STATE).write_text(seal(state))


def _option(name: str, value: object) -> list[str]:
    """An option of the command line."""
    return [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]


class TestOneProcessAtATime:
    def test_two_that_start_at_once_get_a_folder_each(self, whole: Path, tmp_path: Path) -> None:
        recipe = checkpoint.load(whole).recipe
        values = {field.name.replace("_", "-"): getattr(recipe, field.name) for field in fields(recipe)}
        options = [word for name, value in values.items() for word in _option(name, value)]
        command = [sys.executable, "-m", "gomhc", "train", *options]
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        processes = [
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        printed = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert sorted(text.split()[1] for text in printed) == ["runs/go-1", "runs/go-2"]
        for name in ("go-1", "go-2"):
            assert metrics(tmp_path / "runs" / name) == metrics(whole)

    @pytest.mark.parametrize("begin", [resume, lambda run, execution: train(Recipe(), run, execution)])
    def test_a_second_one_is_refused_and_nothing_is_changed(self, started: Path, begin: Callable[..., int]) -> None:
        before = {path: path.read_bytes() for path in started.rglob("*") if path.is_file() and path.name != ".lock"}
        with (
            lock(started / ".lock", "it"),
            pytest.raises(InUse, match=rf"run is in use by process {os.getpid()} \(.*\) on .*; wait for it"),
        ):
            begin(started, CPU)
        for path, content in before.items():
            assert path.read_bytes() == content

    def test_what_is_read_needs_no_lock(self, run: Path) -> None:
        with lock(run / ".lock", "it"):
            assert load_run(run).step == STEPS

    def test_a_run_that_could_not_begin_leaves_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match="corpus must be"):
            train(Recipe(corpus="nowhere"), None, CPU)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "there").mkdir()
        with pytest.raises(ValueError, match="corpus must be"):
            train(Recipe(corpus="nowhere"), tmp_path / "there", CPU)
        assert list((tmp_path / "there").iterdir()) == []


class TestDamage:
    def test_of_damaged_checkpoints_the_one_before_is_taken_and_the_run_ends_as_ever(
        self, run: Path, whole: Path
    ) -> None:
        for step in (4, 6):
            (checkpoint.folder_of(run, step) / checkpoint.STATE).write_text("{}")
        with pytest.warns(UserWarning, match="going back to step 2"):
            assert_finishes_as(run, whole)
        names = sorted(path.name for path in (run / "checkpoints").iterdir())
        assert names == [
            "damaged-step-00000004",
            "damaged-step-00000006",
            "step-00000002",
            "step-00000004",
            "step-00000006",
        ]

    def test_where_all_are_damaged_it_says_so(self, run: Path) -> None:
        for step in checkpoint.steps(run):
            (checkpoint.folder_of(run, step) / checkpoint.OPTIMIZER).unlink()
        for use in (load_run, lambda run: resume(run, CPU)):
            with pytest.raises(
                Damaged, match=r"step-00000006 cannot be read .*; no other checkpoint of this run can be read"
            ):
                use(run)

    @pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EMFILE])
    def test_a_disk_that_fails_for_a_moment_does_not_make_a_checkpoint_damaged(
        self, run: Path, error: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(error, os.strerror(error))

        before = checkpoint.steps(run)
        monkeypatch.setattr(checkpoint, "sha256", fail)
        with pytest.raises(OSError, match=os.strerror(error)):
            resume(run, CPU)
        assert checkpoint.steps(run) == before

    def test_a_checkpoint_of_an_earlier_version_says_so(self, run: Path) -> None:
        (newest(run) / checkpoint.STATE).write_text('{\n "format": "gomhc checkpoint 1",\n "step": 6\n}')
        with pytest.raises(Damaged, match="written by an earlier version of gomhc"):
            load_run(newest(run))

    def test_a_run_that_is_read_while_it_deletes_its_oldest_checkpoint(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folders that were listed are gone, and others have come."""
        listed = iter([[1], [1], *([checkpoint.steps(run)] * 9)])
        monkeypatch.setattr(checkpoint, "steps", lambda _: next(listed))
        with pytest.raises(Damaged):
            checkpoint.load(run)
        assert checkpoint.load(run).step == STEPS
        listed = iter([[1], [STEPS], [STEPS]])
        assert checkpoint.load(run).step == STEPS

    @pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
    def test_every_flipped_bit_of_a_byte_of_each_file_is_noticed(self, run: Path, place: float) -> None:
        for name in (checkpoint.STATE, checkpoint.WEIGHTS, checkpoint.OPTIMIZER):
            file = newest(run) / name
            content = file.read_bytes()
            for bit in range(8):
                flipped = bytearray(content)
                flipped[int(place * len(content))] ^= 1 << bit
                file.write_bytes(flipped)
                with pytest.raises(Damaged):
                    checkpoint.load(file.parent)
            file.write_bytes(content)

    def test_a_torn_line_does_not_take_later_ones_with_it(self, run: Path) -> None:
        lines = (run / FILE).read_text().splitlines(keepends=True)
        (run / FILE).write_text("".join([*lines[:3], '{"step": 2, "lo', "\n", "[]\n", "7\n", "\x00\n", *lines[3:]]))
        assert len(metrics(run)) == len(lines)

    @pytest.mark.parametrize("harm", ["digit", "cut", "torn", "gone"])
    def test_changed_records_are_noticed_and_those_that_can_be_read_are_kept(
        self, started: Path, whole: Path, harm: str
    ) -> None:
        lines = (started / FILE).read_text().splitlines(keepends=True)
        changed = {
            "digit": [lines[0].replace(": 0, ", ": 1, ", 1), *lines[1:]],
            "cut": lines[:2],
            "torn": [lines[0], lines[1][:9] + "\n", *lines[2:]],
            "gone": [],
        }[harm]
        (started / FILE).write_text("".join(changed))
        with pytest.warns(UserWarning, match=r"metrics\.jsonl was changed after the checkpoint"):
            assert resume(started, CPU) == STEPS
        assert weights(started) == weights(whole)
        assert metrics(started)[-3:] == metrics(whole)[-3:]
        assert len(metrics(started)) == len(metrics(whole)) - {"digit": 0, "cut": 4, "torn": 1, "gone": 6}[harm]

    def test_each_surplus_is_cleaned_up(self, started: Path, whole: Path) -> None:
        checkpoints = started / "checkpoints"
        for name in (".old-step-00000002", ".partial-step-00000006", "step-00000000", "step-00000001"):
            shutil.copytree(checkpoint.folder_of(started, 2), checkpoints / name)
        (started / f".{FILE}.a1b2c3d4").write_text("")
        assert_finishes_as(started, whole)
        assert sorted(path.name for path in checkpoints.iterdir()) == [f"step-0000000{step}" for step in (2, 4, 6)]
        assert not [path for path in started.iterdir() if path.name.startswith(f".{FILE}")]

    def test_of_a_finished_run_too(self, run: Path) -> None:
        shutil.copytree(checkpoint.folder_of(run, 2), run / "checkpoints" / ".old-step-00000000")
        edit(newest(run), lambda state: state["recipe"].update(keep=1))
        assert resume(run, CPU) == STEPS
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000006"]

    def test_folders_that_are_no_checkpoints_are_left_alone(self, started: Path, whole: Path) -> None:
        for name in ("step-00000060.bak", "step-best", "step-", "step-000000099", "step-0000009٩"):
            shutil.copytree(newest(started), started / "checkpoints" / name)
        (started / "checkpoints" / "step-00000099").write_text("a file")
        assert_finishes_as(started, whole)
        assert (started / "checkpoints" / "step-00000060.bak").exists()


class TestHostileFolder:
    def test_links_do_not_lead_to_other_files(self, started: Path, whole: Path, tmp_path: Path) -> None:
        precious = tmp_path / "precious"
        precious.write_text("precious")
        (started / f".partial-{FILE}").symlink_to(precious)
        assert_finishes_as(started, whole)
        shutil.rmtree(newest(started))
        (started / FILE).unlink()
        (started / FILE).symlink_to(precious)
        with pytest.raises(Damaged, match="must not be a link"):
            resume(started, CPU)
        assert precious.read_text() == "precious"

    @pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
    def test_links_do_not_lead_to_other_folders(self, started: Path, tmp_path: Path, name: str) -> None:
        (started / name).rename(tmp_path / "elsewhere")
        (started / name).symlink_to(tmp_path / "elsewhere")
        before = sorted((tmp_path / "elsewhere").rglob("*"))
        with pytest.raises(Damaged, match="must not be a link"):
            resume(started, CPU)
        assert sorted((tmp_path / "elsewhere").rglob("*")) == before

    def test_records_without_end_are_not_read_into_memory(self, started: Path, whole: Path) -> None:
        with (started / FILE).open("r+b") as file:
            file.write(b"x")
            file.truncate(2**26)  # zeros, as one line
        with pytest.warns(UserWarning, match="was changed after the checkpoint"):
            assert resume(started, CPU) == STEPS
        assert weights(started) == weights(whole)
        assert (started / FILE).stat().st_size < 10_000

    @pytest.mark.unchecked  # or values of other types would meet the tests' own checks first
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda state: state["files"].clear(), "expected checksums of"),
            (lambda state: state.update(files={"/dev/zero": "0"}), "expected checksums of"),
            (lambda state: state.update(files=None), "expected checksums of"),
            (lambda state: state.update(files=list(state["files"])), "expected checksums of"),
            (lambda state: state.update(step=5), "expected step 6, as in the name of its folder, got 5"),
            (lambda state: state.update(step="6"), "expected step 6, as in the name of its folder, got .6."),
            (lambda state: state.update(step=None), "got None"),
            (lambda state: state["recipe"].update(steps=5), "step 6 is beyond the recipe.s 5 steps"),
            (lambda state: state["recipe"].update(steps="many"), "steps must be a whole number"),
            (lambda state: state["recipe"].update(steps=True), "steps must be a whole number"),
            (lambda state: state["recipe"].update(num_channels=2**40), "weights of the recipe.s model"),
            (lambda state: state["recipe"].update(num_layers=2**40), "weights of the recipe.s model"),
            (lambda state: state["recipe"].update(num_layers=2), "weights of the recipe.s model"),
            (lambda state: state["recipe"].update(mixing="go:expressivity=200"), "weights of the recipe.s model"),
            (lambda state: state["recipe"].update(mixing=7), "mixing must be printable text"),
            (lambda state: state["recipe"].update(learning_rate="high"), "learning_rate must be a finite number"),
            (lambda state: state["recipe"].update(learning_rate=10**400), "learning_rate must be a finite number"),
            (lambda state: state["recipe"].update(num_heads=0), "num_heads must be a whole number"),
            (lambda state: state.update(recipe=[]), "a recipe must be a dictionary"),
            (lambda state: state.pop("recipe"), "recipe"),
            (lambda state: state["tokenizer"].update(characters="ab"), "but the tokenizer has 3"),
            (lambda state: state["tokenizer"].update(characters="aa"), "no character twice"),
            (lambda state: state["tokenizer"].update(characters=7), "no character twice"),
            (lambda state: state["tokenizer"].update(has_end=7), "has_end must be"),
            (lambda state: state["tokenizer"].update(kind="words"), "kind must be one of character, bpe, gpt2"),
            (lambda state: state["tokenizer"].update(size=3), "not a description of a tokenizer"),
            (lambda state: state.update(tokenizer=[]), "kind must be one of"),
            (lambda state: state["history"].update(bytes=-1), "must be a whole number"),
        ],
    )
    def test_an_edited_state_is_one_error(
        self, run: Path, change: Callable[[dict[str, Any]], object], message: str
    ) -> None:
        edit(newest(run), change)
        with pytest.raises(Damaged, match=f"step-00000006 cannot be read .*{message}"):
            load_run(newest(run))
        with pytest.warns(UserWarning, match="going back to step 4"):
            assert checkpoint.load(run).step == 4

    @pytest.mark.parametrize("file", [checkpoint.WEIGHTS, checkpoint.OPTIMIZER])
    @pytest.mark.parametrize("harm", ["transposed", "renamed", "another dtype", "one less", "not tensors"])
    def test_edited_tensors_are_one_error(self, run: Path, file: str, harm: str) -> None:
        path = newest(run) / file
        tensors = load_file(path)
        name = next(name for name in tensors if len(set(tensors[name].shape)) == 2)
        if harm == "transposed":
            tensors[name] = tensors[name].mT.contiguous()
        elif harm == "renamed":
            tensors["another"] = tensors.pop(name)
        elif harm == "another dtype":
            tensors[name] = tensors[name].half()
        else:
            del tensors[name]
        save_file(tensors, path)
        if harm == "not tensors":
            path.write_bytes(b"not tensors")
        edit(newest(run), lambda state: state["files"].update({file: sha256(path)}))
        with pytest.raises(Damaged):
            load_run(newest(run))

    def test_weights_and_moments_that_fit_each_other_must_fit_the_model_too(self, run: Path) -> None:
        for file in (checkpoint.WEIGHTS, checkpoint.OPTIMIZER):
            path = newest(run) / file
            tensors = load_file(path)
            renamed = {name.replace("norm.weight", "norm.width"): tensor for name, tensor in tensors.items()}
            save_file(renamed, path)
            digest = sha256(path)
            edit(newest(run), lambda state, file=file, digest=digest: state["files"].update({file: digest}))
        with pytest.raises(Damaged, match="expected the tensors of the recipe's model"):
            load_run(newest(run))
        for step in (2, 4):
            shutil.rmtree(checkpoint.folder_of(run, step))
        with pytest.raises(Damaged, match="expected the tensors of the recipe's model"):
            resume(run, CPU)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have names")
    @pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
    def test_what_is_no_file_is_not_read_for_ever(self, run: Path, kind: str) -> None:
        for name in (checkpoint.STATE, checkpoint.WEIGHTS):
            path = newest(run) / name
            path.unlink()
            {
                "pipe": lambda path: os.mkfifo(path),
                "device": lambda path: path.symlink_to("/dev/zero"),
                "folder": lambda path: path.mkdir(),
            }[kind](path)
            with pytest.raises(Damaged):
                checkpoint.load(newest(run))

    def test_a_checkpoint_is_not_resumed_as_a_run(self, run: Path) -> None:
        before = sorted(newest(run).iterdir())
        with pytest.raises(
            ValueError, match=rf"is a checkpoint; expected the folder of a run, such as {re.escape(str(run))}"
        ):
            resume(newest(run), CPU)
        assert sorted(newest(run).iterdir()) == before


class TestSizes:
    @pytest.mark.parametrize("key", ["none", *gomhc.PARAMETRIZATIONS])
    @pytest.mark.parametrize("changes", [{}, {"dynamic": False}, {"readout": "learned"}, {"num_layers": 3}])
    def test_parameters_are_counted_without_building_the_model(self, key: str, changes: dict[str, Any]) -> None:
        mixing = None if key == "none" else as_mixing(key, 4)
        sizes = {"num_layers": 2, "num_heads": 2, "num_channels": 8, "context_length": 16, "vocab_size": 11}
        config = GPTConfig(**{**sizes, "mixing": mixing, **changes})
        assert config.num_parameters == sum(parameter.numel() for parameter in GPT(config).parameters())

    @pytest.mark.parametrize(
        "change",
        [
            {"num_channels": 2**20},
            {"num_layers": 10**12},
            {"batch_size": 10**10},
            {"context_length": 10**12},
            {"mixing": "go:expressivity=256", "num_layers": 100},
        ],
    )
    def test_what_cannot_fit_into_memory_is_refused_at_once(
        self, whole: Path, tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(World, "memory", 2**32)
        recipe = replace(checkpoint.load(whole).recipe, **change)
        refused = r"more than [\d,.]+ GiB, but the device has 4\.0; choose|a context length of 1000000000000 needs"
        with pytest.raises(ValueError, match=refused):
            train(recipe, tmp_path / "run", CPU)
        assert not (tmp_path / "run").exists()

    def test_a_gpu_that_is_not_there_is_told(self, whole: Path, tmp_path: Path) -> None:
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        recipe = checkpoint.load(whole).recipe
        with pytest.raises(ValueError, match="device must be cpu or auto, because torch sees no GPU"):
            train(recipe, tmp_path / "run", Execution(device="cuda"))
        assert not (tmp_path / "run").exists()


def test_state_is_json_for_everyone(whole: Path) -> None:
    assert json.loads((newest(whole) / checkpoint.STATE).read_text())["step"] == STEPS
