"""A run that dies loses nothing, and a number is what it says."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import small_recipe

import gomhc
from gomhc.inspection import inspect
from gomhc.lab.data import corpora
from gomhc.lab.data.tokens import evaluation_windows, prepare
from gomhc.lab.files import seal, unseal
from gomhc.lab.lock import lock
from gomhc.lab.training import Execution, NotFinite, Recipe, Watcher, checkpoint, load_run, resume, train
from gomhc.lab.training.history import FILE, read
from gomhc.lab.training.recipe import EARLIER

CPU = Execution(device="cpu")
pytestmark = pytest.mark.usefixtures("token_cache")
DRIVER = Path(__file__).parents[2] / "support" / "train_and_die.py"
STEPS, SAVE_EVERY = 9, 3
Ended = subprocess.CompletedProcess[str]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return small(tmp_path / "corpus.txt")


def small(corpus: Path) -> Recipe:
    return small_recipe(
        corpus,
        num_layers=2,
        num_heads=2,
        num_channels=16,
        context_length=16,
        steps=STEPS,
        batch_size=4,
        accumulation=2,
        warmup_steps=2,
        evaluate_every=4,
        evaluation_windows=4,
        sample_tokens=5,
        save_every=SAVE_EVERY,
        keep=10,
    )


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder_of(run, checkpoint.steps(run)[-1]) / checkpoint.WEIGHTS)


def metrics(run: Path) -> list[dict[str, Any]]:
    """All records, without the time that they took."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in read(run)]


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit."""
    assert metrics(one) == metrics(other)
    found, expected = weights(one), weights(other)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0, msg=name)


def drive(
    run: Path, recipe: Recipe, when: str, ranks: int = 1, parallel: str = "ddp"
) -> subprocess.CompletedProcess[str]:
    """Train in other processes, which are killed as `when` says."""
    file = run.with_suffix(".json")
    file.write_text(json.dumps(asdict(recipe)))
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *launcher, str(DRIVER), str(run), str(file), when, parallel]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def finish(run: Path, recipe: Recipe, ranks: int = 1, parallel: str = "ddp") -> Path:
    ended = drive(run, recipe, "never", ranks, parallel)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run


class Reference:
    """Undisturbed runs of one recipe, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recipe = folder, small(folder / "corpus.txt")

    def run(self, ranks: int, parallel: str = "ddp") -> Path:
        run = self.folder / f"{ranks}-{parallel}"
        return run if run.exists() else finish(run, self.recipe, ranks, parallel)

    def run_up_to(self, step: int, target: Path, ranks: int, parallel: str = "ddp") -> Path:
        """A copy that knows nothing beyond that step."""
        shutil.copytree(self.run(ranks, parallel), target)
        for later in checkpoint.steps(target):
            if later > step:
                shutil.rmtree(checkpoint.folder_of(target, later))
        return target


@pytest.fixture(scope="module")
def reference(token_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("reference"))


class Disturbing(Watcher):
    """Does something to the run after a step."""

    def __init__(self, step: int, disturb: Callable[[torch.nn.Module], object]) -> None:
        self.step, self.disturb = step, disturb

    def started(self, recipe: Recipe, model: Any, step: int) -> None:
        self.model = model

    def stepped(self, record: Any) -> None:
        if record["step"] == self.step:
            self.disturb(self.model)


def test_loss_falls(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, steps=60, evaluate_every=60, learning_rate=0.01), tmp_path / "run", CPU)
    losses = [record["loss"] for record in metrics(tmp_path / "run") if "loss" in record]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    first, last = (record["validation_loss"] for record in metrics(tmp_path / "run") if "validation_loss" in record)
    assert last < 0.8 * first


@pytest.mark.parametrize("ranks", [1, 2])
def test_run_that_was_killed_twice_equals_the_uninterrupted_run_bitwise(
    reference: Reference, tmp_path: Path, ranks: int
) -> None:
    run, recipe, step = tmp_path / "run", reference.recipe, random.randrange(1, 2 * SAVE_EVERY)
    assert drive(run, recipe, f"step:{step}", ranks).returncode != 0, f"not killed at step {step}"
    assert checkpoint.steps(run)[-1] <= step
    assert drive(run, recipe, f"write:{2 * SAVE_EVERY}", ranks).returncode != 0
    assert checkpoint.steps(run) == [0, SAVE_EVERY]
    assert list((run / "checkpoints").glob(".partial-*")), "not killed in the middle of a checkpoint"
    assert checkpoint.load(run).step == SAVE_EVERY
    finish(run, recipe, ranks)
    assert_same_run(run, reference.run(ranks))
    assert not list((run / "checkpoints").glob(".*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_leaves_cleanly(recipe: Recipe, tmp_path: Path, number: signal.Signals) -> None:
    recipe = replace(recipe, dropout=0.1)
    train(recipe, tmp_path / "whole", CPU)
    before = signal.getsignal(number)
    signalled = Disturbing(4, lambda model: os.kill(os.getpid(), number))
    assert train(recipe, tmp_path / "stopped", CPU, signalled) == 5
    assert signal.getsignal(number) is before
    assert checkpoint.steps(tmp_path / "stopped")[-1] == 5
    assert resume(tmp_path / "stopped", CPU) == STEPS
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


def test_second_interrupt_leaves_at_once(recipe: Recipe, tmp_path: Path) -> None:
    twice = Disturbing(4, lambda model: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "run", CPU, twice)


@pytest.mark.parametrize("mixing", ["none", *gomhc.PARAMETRIZATIONS])
def test_every_mixing_trains(recipe: Recipe, tmp_path: Path, mixing: str) -> None:
    train(replace(recipe, mixing=mixing, steps=2), tmp_path / "run", CPU)
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "run") if "loss" in record)


def test_evaluations_log_what_inspect_says_of_the_streams(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", CPU)
    last = metrics(tmp_path / "run")[-1]
    data = prepare(corpora.find(recipe.corpus), recipe.tokenizer)
    windows, _ = evaluation_windows(data.validation, recipe.context_length, recipe.evaluation_windows)
    found = inspect(load_run(tmp_path / "run").model, windows[:1])
    assert last["step"] == STEPS
    assert last == {**last, **found.summary()}
    assert list(last["mix_distance"].values()) == found.distance_to_identity.tolist()


@pytest.mark.parametrize("ranks", [1, 2])
def test_evaluations_do_not_change_what_is_learned(reference: Reference, tmp_path: Path, ranks: int) -> None:
    often = finish(tmp_path / "often", replace(reference.recipe, evaluate_every=1), ranks, "fsdp")
    found, expected = weights(often), weights(reference.run(ranks, "fsdp"))
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def assert_nearly_same_run(one: Path, other: Path) -> None:
    """To what the order of summation leaves in float32, after a few steps of Adam."""
    for found, expected in zip(metrics(one), metrics(other), strict=True):
        for name in ("loss", "gradient_norm", "validation_loss"):
            if name in expected:
                assert found[name] == pytest.approx(expected[name], rel=1e-4), (name, found["step"])


def test_two_processes_equal_one(reference: Reference) -> None:
    assert_nearly_same_run(reference.run(2), reference.run(1))


def test_shared_out_model_equals_whole_ones(reference: Reference) -> None:
    assert_nearly_same_run(reference.run(2, "fsdp"), reference.run(2))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_checkpoint_of_two_processes_resumes_on_one(reference: Reference, tmp_path: Path, parallel: str) -> None:
    run = reference.run_up_to(SAVE_EVERY, tmp_path / "run", 2, parallel)
    assert resume(run, CPU) == STEPS
    assert_nearly_same_run(run, reference.run(1))


def test_checkpoint_of_one_process_resumes_on_two(reference: Reference, tmp_path: Path) -> None:
    run = reference.run_up_to(SAVE_EVERY, tmp_path / "run", 1)
    finish(run, reference.recipe, 2, "fsdp")
    assert_nearly_same_run(run, reference.run(1))


def test_mixing_without_parameters_trains_on_two_processes(reference: Reference, tmp_path: Path) -> None:
    finish(tmp_path / "run", replace(reference.recipe, mixing="identity", steps=2), 2)


def test_accumulated_batches_equal_a_large_one(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, batch_size=8, accumulation=1), tmp_path / "large", CPU)
    train(replace(recipe, batch_size=2, accumulation=4), tmp_path / "parts", CPU)
    assert_nearly_same_run(tmp_path / "parts", tmp_path / "large")


def test_bfloat16_is_near_float32(recipe: Recipe, tmp_path: Path) -> None:
    for precision in ("float32", "bfloat16"):
        train(replace(recipe, precision=precision), tmp_path / precision, CPU)  # type: ignore[arg-type]
    for found, expected in zip(metrics(tmp_path / "bfloat16"), metrics(tmp_path / "float32"), strict=True):
        if "loss" in expected:
            assert found["loss"] != expected["loss"]
            assert found["loss"] == pytest.approx(expected["loss"], rel=2**-6)


@pytest.mark.unchecked
def test_compiled_run_is_near_the_eager_one(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, steps=3)
    train(recipe, tmp_path / "eager", CPU)
    train(recipe, tmp_path / "compiled", replace(CPU, compile=True))
    assert_nearly_same_run(tmp_path / "compiled", tmp_path / "eager")


@pytest.mark.parametrize(("step", "what"), [(5, "loss"), (4, "validation loss")])
def test_loss_that_is_not_finite_stops_the_run_and_names_step_and_layer(
    recipe: Recipe, tmp_path: Path, step: int, what: str
) -> None:
    weight = "blocks.1.feed_forward.branch.up.weight"
    poison = Disturbing(step - 1, lambda model: model.get_parameter(weight).data.fill_(torch.nan))
    where = r"blocks\.1\.feed_forward\.branch\.up\."
    with pytest.raises(NotFinite, match=rf"at step {step} the {what} is nan.* not finite is {where}"):
        train(recipe, tmp_path / "run", CPU, poison)
    assert checkpoint.steps(tmp_path / "run")[-1] == SAVE_EVERY
    assert all(torch.isfinite(weight).all() for weight in weights(tmp_path / "run").values())


def test_gradient_that_is_not_finite_stops_the_run(recipe: Recipe, tmp_path: Path) -> None:
    poison = Disturbing(
        0, lambda model: model.get_parameter("norm.weight").register_hook(lambda gradient: gradient * torch.inf)
    )
    with pytest.raises(NotFinite, match=r"at step 1 .* the gradient of norm\.weight"):
        train(recipe, tmp_path / "run", CPU, poison)


def test_coefficients_with_the_rate_of_all_others_learn_as_without_one_of_their_own(
    recipe: Recipe, tmp_path: Path
) -> None:
    train(replace(recipe, coefficient_learning_rate=None), tmp_path / "shared", CPU)
    train(replace(recipe, coefficient_learning_rate=recipe.learning_rate), tmp_path / "own", CPU)
    assert_same_run(tmp_path / "shared", tmp_path / "own")


def test_coefficients_without_a_rate_stay_and_all_others_learn(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, coefficient_learning_rate=0.0), tmp_path / "run", CPU)
    first = load_file(checkpoint.folder_of(tmp_path / "run", 0) / checkpoint.WEIGHTS)
    last = weights(tmp_path / "run")
    for name in last:
        learned = not torch.equal(first[name], last[name])
        assert learned == ("coefficients" not in name), name


def test_run_with_a_rate_for_coefficients_resumes_bitwise(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, coefficient_learning_rate=3 * recipe.learning_rate, readout="learned", dynamic=True)
    train(recipe, tmp_path / "whole", CPU)
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    for step in checkpoint.steps(tmp_path / "resumed")[2:]:
        shutil.rmtree(checkpoint.folder_of(tmp_path / "resumed", step))
    resume(tmp_path / "resumed", CPU)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize(
    "changes", [{"readout": "sum"}, {"dynamic": False}, {"initial_scale": 0.1}, {"total_leak": 0.1}], ids=str
)
def test_option_of_the_streams_changes_the_run(recipe: Recipe, tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe = replace(recipe, start="mean-stream")  # streams that are equal do not see how they are mixed
    train(replace(recipe, **changes), tmp_path / "run", CPU)
    train(recipe, tmp_path / "default", CPU)
    losses = [
        [record["loss"] for record in metrics(tmp_path / name) if "loss" in record] for name in ("run", "default")
    ]
    assert losses[0] != losses[1]


def test_run_with_trained_byte_pairs_knows_them(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, tokenizer="bpe:300"), tmp_path / "run", CPU)
    Path(recipe.corpus).unlink()
    trained = load_run(tmp_path / "run")
    assert trained.model.config.vocab_size == trained.tokenizer.vocab_size <= 300
    assert trained.tokenizer.decode(trained.tokenizer.encode("a boat, naïve")) == "a boat, naïve"


def test_checkpoint_without_the_newer_fields_of_the_recipe_is_read(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", CPU)
    file = checkpoint.folder_of(tmp_path / "run", STEPS) / checkpoint.STATE
    state = unseal(file.read_bytes())
    for name in EARLIER:
        del state["recipe"][name]
    file.write_text(seal(state))
    assert load_run(tmp_path / "run").recipe == replace(recipe, coefficient_learning_rate=None)


def test_learning_rate_rises_in_a_line_and_falls_in_a_cosine() -> None:
    recipe = Recipe(steps=110, warmup_steps=10, learning_rate=1.0, final_learning_rate=0.1)
    rates = [recipe.learning_rate_at(step) for step in range(111)]
    assert rates[:11] == pytest.approx([(step + 1) / 11 for step in range(11)])
    assert rates[60] == pytest.approx(0.55)
    assert rates[110] == pytest.approx(0.1)


def test_only_the_newest_checkpoints_are_kept(recipe: Recipe, tmp_path: Path) -> None:
    train(replace(recipe, save_every=2, keep=3), tmp_path / "run", CPU)
    assert checkpoint.steps(tmp_path / "run") == [6, 8, 9]


def test_records_that_a_resumed_run_repeats_are_forgotten(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe, run, CPU)
    expected = metrics(run)
    shutil.rmtree(checkpoint.folder_of(run, STEPS))
    with (run / FILE).open("a") as file:
        file.write('{"step": 5, "loss"')  # torn
    resume(run, CPU)
    assert metrics(run) == expected


def test_run_is_loaded_with_what_it_knows(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run", CPU)
    run = load_run(tmp_path / "run")
    assert (run.recipe, run.step, run.model.training) == (recipe, STEPS, False)
    assert run.tokenizer.decode(run.tokenizer.encode("Once upon a time")) == "Once upon a time"
    for name, weight in run.model.state_dict().items():
        torch.testing.assert_close(weight, weights(tmp_path / "run")[name], rtol=0, atol=0)
    alone = load_run(checkpoint.folder_of(tmp_path / "run", 6))
    assert alone.step == 6


class TestMistakes:
    """A clear error, nothing lost, nothing half written."""

    @pytest.fixture
    def run(self, recipe: Recipe, tmp_path: Path) -> Path:
        train(recipe, tmp_path / "run", CPU)
        return tmp_path / "run"

    def test_folder_with_a_run_is_not_overwritten(self, recipe: Recipe, run: Path) -> None:
        before = metrics(run)
        with pytest.raises(ValueError, match="already has a run; continue it with --resume"):
            train(recipe, run, CPU)
        assert metrics(run) == before

    @pytest.mark.parametrize("file", [checkpoint.WEIGHTS, checkpoint.OPTIMIZER, checkpoint.STATE])
    @pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
    def test_damaged_checkpoint(self, run: Path, file: str, damage: str) -> None:
        path = checkpoint.folder_of(run, STEPS) / file
        before = {name: weight.clone() for name, weight in weights(run).items()}  # not a view of the file
        content = bytearray(path.read_bytes())
        if damage == "truncated":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "flipped":
            content[len(content) // 2] ^= 0x80
            path.write_bytes(content)
        else:
            path.unlink()
        with pytest.warns(UserWarning, match=r"step-00000009 cannot be read .* going back to step 6"):
            assert resume(run, CPU) == STEPS
        assert (run / "checkpoints" / "damaged-step-00000009").exists()
        assert checkpoint.steps(run) == [0, 3, 6, 9]
        assert all(torch.equal(weight, before[name]) for name, weight in weights(run).items())

    def test_foreign_checkpoint(self, run: Path) -> None:
        state = checkpoint.folder_of(run, STEPS) / checkpoint.STATE
        state.write_text(seal({"format": "another"}))
        with pytest.raises(ValueError, match="expected the format 'gomhc checkpoint 2', got 'another'"):
            load_run(state.parent)

    def test_foreign_weights(self, run: Path) -> None:
        folder = checkpoint.folder_of(run, STEPS)
        save_file({"x": torch.zeros(1)}, folder / checkpoint.WEIGHTS)
        with pytest.raises(ValueError, match=r"model\.safetensors has changed"):
            load_run(folder)

    def test_recipe_of_another_version(self, run: Path) -> None:
        path = checkpoint.folder_of(run, STEPS) / checkpoint.STATE
        state = unseal(path.read_bytes())
        state["recipe"]["optimiser"] = "lion"
        path.write_text(seal(state))
        with pytest.raises(ValueError, match="fields that this version of gomhc does not know: optimiser"):
            load_run(path.parent)

    def test_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"there is no folder .*; give the folder of a run of gomhc train"):
            resume(tmp_path / "nothing", CPU)
        with pytest.raises(ValueError, match="is not a run of gomhc train: there is no checkpoint in"):
            resume(tmp_path, CPU)
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="is a file; give the folder of a run of gomhc train"):
            resume(tmp_path / "file", CPU)

    def test_changed_corpus(self, recipe: Recipe, run: Path) -> None:
        shutil.rmtree(checkpoint.folder_of(run, STEPS))
        with Path(recipe.corpus).open("a") as file:
            file.write("<|endoftext|>One more story.")
        with pytest.raises(ValueError, match="has changed since this run started"):
            resume(run, CPU)

    def test_empty_corpus(self, recipe: Recipe, tmp_path: Path, token_cache: Path) -> None:
        Path(recipe.corpus).write_text("\n\n<|endoftext|>\n")
        with pytest.raises(ValueError, match="corpus is empty"):
            train(recipe, tmp_path / "run", CPU)
        assert not (tmp_path / "run").exists()
        assert not list((token_cache / "tokens").glob("partial-*"))

    def test_corpus_shorter_than_the_context(self, recipe: Recipe, tmp_path: Path) -> None:
        Path(recipe.corpus).write_text("Too short for that.\n")
        with pytest.raises(ValueError, match=r"has .* tokens, but a context length of 16 needs"):
            train(recipe, tmp_path / "run", CPU)
        assert not (tmp_path / "run").exists()

    def test_corpus_that_does_not_exist(self, recipe: Recipe, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="must be stories, shakespeare, tinystories or a text file"):
            train(replace(recipe, corpus="novels"), tmp_path / "run", CPU)

    def test_two_processes_go_back_to_the_same_checkpoint(self, reference: Reference, tmp_path: Path) -> None:
        run = reference.run_up_to(2 * SAVE_EVERY, tmp_path / "run", 2)
        (checkpoint.folder_of(run, 2 * SAVE_EVERY) / checkpoint.STATE).write_text("{}")
        finish(run, reference.recipe, 2)
        assert_same_run(run, reference.run(2))

    @pytest.mark.parametrize("arguments", [["--resume"], ["--out"]])
    def test_of_two_processes_that_are_refused_one_says_why(
        self, reference: Reference, tmp_path: Path, arguments: list[str]
    ) -> None:
        run = reference.run_up_to(SAVE_EVERY, tmp_path / "run", 1)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        with lock(run / ".lock", "it"):
            command = [*launcher, "-m", "gomhc", "train", *arguments, str(run)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode != 0
        assert ended.stderr.count("is in use by process") == 1
        assert "gomhc/lab/training" not in ended.stderr  # torchrun has a traceback of its own when a process fails
        assert "Connection" not in ended.stderr

    def test_batch_that_processes_cannot_share(self, recipe: Recipe, tmp_path: Path) -> None:
        ended = drive(tmp_path / "run", replace(recipe, batch_size=3), "never", ranks=2)
        assert "must be a multiple of the number of processes, 2, got 3" in ended.stderr

    def test_full_disk(self, recipe: Recipe, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.rmtree(checkpoint.folder_of(run, STEPS))
        before = weights(run)

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device") as raised:
            resume(run, CPU)
        assert raised.value.errno == errno.ENOSPC
        monkeypatch.undo()
        assert checkpoint.steps(run) == [0, 3, 6]
        assert not list((run / "checkpoints").glob(".*"))
        assert all(torch.equal(weight, before[name]) for name, weight in weights(run).items())

    def test_file_that_cannot_grow(self, recipe: Recipe, tmp_path: Path) -> None:
        """A real failure of a real write, by the limit of the process on the size of files."""
        resource = pytest.importorskip("resource", reason="no such limits on this system")
        run = tmp_path / "run"
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            train(replace(recipe, steps=1), run, CPU)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
            with pytest.raises(
                OSError, match=r"cannot write the checkpoint of step 2 .* the last good checkpoint is .*step-0*1"
            ):
                checkpoint.save(run, replace(checkpoint.load(run), step=2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert checkpoint.load(run).step == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"mixing": "magic"}, "the mixing must be one of go, "),
            ({"mixing": "go:s=2"}, "go has no option s; its options are initial_leak, expressivity, rotation, layout"),
            ({"mixing": "go:2"}, "options must look like expressivity=3"),
            ({"mixing": "kronecker:factors=(2,3)", "num_streams": 4}, "4"),
            ({"num_heads": 3}, "num_channels must be a multiple of num_heads=3, got 128"),
            ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
            ({"dropout": 1.0}, "dropout must be a finite number, at least 0 and below 1; got 1.0"),
            ({"clip": 0.0}, "clip must be a finite number, above 0"),
        ],
    )
    def test_recipe_that_cannot_be(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message.replace("(", r"\(")):
            Recipe(**change)
