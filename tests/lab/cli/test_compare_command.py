"""`gomhc compare` gives the same answer whatever happens on the way."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from browser import assert_sound, needs_chromium, open_page
from small_runs import small_recipe

from gomhc.lab.cli import compare as compare_command
from gomhc.lab.cli import main
from gomhc.lab.cli.compare import INTERRUPTED
from gomhc.lab.comparison.runs import Outcome, StopAtFile, Task
from gomhc.lab.data import corpora
from gomhc.lab.data.tokens import prepare
from gomhc.lab.training import Recipe
from gomhc.lab.training.loop import Trainer

METHODS = ("none", "none:as-wide", "go@start=equal-streams")
SMALL = (
    "--num-layers", "1", "--num-heads", "1", "--num-channels", "16", "--context-length", "16", "--batch-size", "2",
    "--warmup-steps", "2", "--evaluate-every", "5", "--evaluation-windows", "4", "--save-every", "4",
)  # fmt: skip
TIMES = ("milliseconds", "spread", "time", "core_hours")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    small_recipe(file)
    return file


def command(out: Path, corpus: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "gomhc", "compare", "--out", str(out), "--corpus", str(corpus), *SMALL, *arguments]


def compare(out: Path, corpus: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, corpus, *arguments), capture_output=True, text=True, check=False, timeout=900)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def load(out: Path) -> Any:
    return json.loads((out / "compare.json").read_text())


TUNE = ("--tune", "learning_rate=1e-3,2e-3", "coefficient_learning_rate=None,1e-4", "--tuning-steps", "5")
FULL = ("--seeds", "2", "--steps", "20", "--jobs", "2", *TUNE)


@pytest.fixture(scope="module")
def out(token_cache: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparison")
    done = compare(folder, corpus, *METHODS, *FULL)
    assert done.returncode == 0, done.stderr
    assert f"wrote {folder / 'compare.html'}" in done.stdout
    assert "[6/6] " in done.stderr
    assert " left\n" in done.stderr
    return folder


def test_json_has_the_paired_differences_to_the_first_method(out: Path) -> None:
    compared = load(out)
    for which in ("differences", "differences_at_equal_seconds"):
        assert [one["method"] for one in compared[which]] == list(METHODS[1:])
        for one in compared[which]:
            assert one["reference"] == "none"
            assert one["low"] <= one["mean"] <= one["high"]
            assert one["mean"] == pytest.approx(sum(one["seeds"]) / 2)
    assert all(method["jitter"] == pytest.approx(sum(method["jitters"]) / 2) for method in compared["methods"])
    losses = {method["method"]: method["losses"] for method in compared["methods"]}
    assert compared["differences"][0]["seeds"] == [a - b for a, b in zip(*map(losses.get, METHODS[1::-1]), strict=True)]


def test_each_method_is_compared_at_its_best_values(out: Path) -> None:
    for method in load(out)["methods"]:
        options = [tried["option"] for tried in method["tuned"]]
        assert (
            options == ["learning_rate", "coefficient_learning_rate"][: 1 if method["method"].startswith("none") else 2]
        )
        for tried in method["tuned"]:
            assert tried["losses"][tried["values"].index(tried["best"])] == min(tried["losses"])
            assert method["recipe"][tried["option"]] == tried["best"]


@needs_chromium
@pytest.mark.parametrize("width", [360, 1200])
def test_page_is_sound_in_a_browser(out: Path, tmp_path: Path, width: int) -> None:
    seen = open_page((out / "compare.html").read_text(), tmp_path, width=width)
    assert_sound(seen)
    assert len(seen["plots"]) == 3
    assert seen["overflow"] <= 0


def test_page_opens_with_what_was_found(out: Path) -> None:
    page = (out / "compare.html").read_text()
    assert page.index("the lowest validation loss after ") < page.index("<svg") < page.index("<table")
    assert all(method in page for method in METHODS)


def test_second_time_nothing_runs(out: Path, corpus: Path) -> None:
    before = (out / "compare.json").read_bytes()
    done = compare(out, corpus, *METHODS, *FULL)
    assert "6 runs kept, 0 to do" in done.stderr
    assert (out / "compare.json").read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="needs process groups")
@pytest.mark.parametrize("sent", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_stopped_at_random_and_started_again_it_gives_the_same_json(
    out: Path, corpus: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    shutil.copy(out / "costs.json", tmp_path)
    process = subprocess.Popen(
        command(tmp_path, corpus, *METHODS, *FULL),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline, wanted = time.monotonic() + 600, random.randrange(1, 10)
    while process.poll() is None and len(list(tmp_path.glob("runs/*/checkpoints/step-*[1-9]"))) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if sent == signal.SIGKILL:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)  # to the command alone, which tells its workers
    said = process.communicate(timeout=600)[1]
    if sent == signal.SIGINT and not (tmp_path / "compare.json").exists():
        assert "interrupted: every run has saved a checkpoint; the same command continues from here" in said
    done = compare(tmp_path, corpus, *METHODS, *FULL)
    assert done.returncode == 0, done.stderr
    assert without_times(load(tmp_path)) == without_times(load(out))


def test_two_names_of_one_run_are_trained_once(token_cache: Path, corpus: Path, tmp_path: Path) -> None:
    methods = ("none", "none@start=equal-streams", "go", "go@learning_rate=1e-3")
    options = ("--learning-rate", "1e-3", "--seeds", "2", "--steps", "6", "--jobs", "2")
    done = compare(tmp_path, corpus, *methods, *options)
    assert done.returncode == 0, done.stderr
    assert "0 runs kept, 4 to do" in done.stderr
    assert len(list(tmp_path.glob("records/compare/*.json"))) == 4
    assert [one["mean"] == 0 for one in load(tmp_path)["differences"]] == [True, False, False]


def test_run_that_somebody_else_stops_is_no_result(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gets a signal of its own saves and returns without a record; the others go on."""
    original = compare_command.perform

    def stopped(tasks: Sequence[Task], *rest: Any) -> Iterator[Outcome]:
        yield from original(tasks[1:], *rest)
        yield Outcome(tasks[0])

    monkeypatch.setattr(compare_command, "perform", stopped)
    arguments = ("none", "go", "--seeds", "2", "--steps", "5", "--jobs", "2")
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *arguments)[2:])
    with pytest.raises(SystemExit, match="interrupted: every run has saved a checkpoint"):
        main()
    assert not (tmp_path / "compare.json").exists()
    assert len(list(tmp_path.glob("records/compare/*.json"))) == 3


def test_costs_are_those_of_the_size_that_tuning_chose(token_cache: Path, corpus: Path, tmp_path: Path) -> None:
    options = ("none", "none:as-wide", "go", "--seeds", "2", "--steps", "5", "--tune", "num_streams=2,3")
    done = compare(tmp_path, corpus, *options)
    assert done.returncode == 0, done.stderr
    methods = {method["method"]: method for method in load(tmp_path)["methods"]}
    chosen = methods["go"]["recipe"]["num_streams"]
    assert chosen in (2, 3)
    recipe = Recipe.from_dict({**methods["go"]["recipe"], "corpus": str(corpus), "seed": 0})
    vocab_size = prepare(corpora.find(str(corpus)), "character").tokenizer.vocab_size
    assert methods["go"]["num_parameters"] == recipe.gpt_config(vocab_size).num_parameters
    assert methods["none:as-wide"]["recipe"]["num_streams"] == chosen
    assert methods["none:as-wide"]["num_parameters"] == pytest.approx(methods["go"]["num_parameters"], rel=0.02)


def test_plan_says_how_long_it_takes_and_runs_nothing(token_cache: Path, corpus: Path, tmp_path: Path) -> None:
    done = compare(tmp_path, corpus, "none", "go", "--seeds", "3", "--steps", "7", "--jobs", "2", "--plan")
    assert "6 runs to do (0 kept)" in done.stdout
    assert "with 2 at a time" in done.stdout
    again = compare(tmp_path, corpus, "none", "go", "--seeds", "3", "--steps", "7", "--equal-seconds", "--plan")
    assert "9 runs to do (0 kept)" in again.stdout  # none is as fast as none
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none", "go", "--seeds", "1"), "error: --seeds must be at least 2, because one seed shows no difference"),
        (("none", "magic"), "error: method magic: the mixing must be one of go"),
        (("none",), "error: a comparison needs at least two methods"),
        (("none", "go", "--mixing", "identity"), "error: --mixing must be given as METHOD"),
        (("none", "go", "--context-length", "100000"), "the training part of the corpus has"),
        (("none", "go", "--jobs", "0"), "error: --jobs must be a whole number of at least 1, got 0"),
        (("none", "go", "--corpus", "nowhere.txt"), "error: the corpus must be stories"),
    ],
)
def test_mistake_is_one_line_and_leaves_nothing(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, capsys, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", command(tmp_path / "out", corpus, *arguments)[2:])
    with pytest.raises(SystemExit) as stop:
        main()
    assert message in str(stop.value)
    assert len(str(stop.value).splitlines()) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("go@learning_rate=fast",), "error: method go@learning_rate=fast: learning_rate must be a finite number"),
        (("go@dynamic=perhaps",), "error: method go@dynamic=perhaps: dynamic must be True or False"),
        (
            ("go", "--tune", "learning_rate=fast,slow"),
            "--tune learning_rate=fast, method none: learning_rate must",
        ),
        (("go", "--num-channels", "16000000"), "error: method none: a model of"),
        (("go", "--mixing", "go"), "error: --mixing must be given as METHOD"),
    ],
)
def test_value_of_the_wrong_kind_is_told(
    corpus: Path, tmp_path: Path, monkeypatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", command(tmp_path / "out", corpus, "none", *arguments)[2:])
    with pytest.raises(SystemExit) as stop:
        main()
    assert message in str(stop.value)


@pytest.mark.slow
def test_processes_of_torchrun_train_each_run_together(token_cache: Path, corpus: Path, tmp_path: Path) -> None:
    options = ("none", "go", "--seeds", "2", "--steps", "6", "--tune", "learning_rate=1e-3,2e-3", "--equal-seconds")
    alone = compare(tmp_path / "alone", corpus, *options, "--jobs", "1")
    assert alone.returncode == 0, alone.stderr
    (tmp_path / "together").mkdir()
    shutil.copy(tmp_path / "alone" / "costs.json", tmp_path / "together")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    together = [*launch, *command(tmp_path / "together", corpus, *options)[1:]]
    done = subprocess.run(together, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    expected, found = load(tmp_path / "alone"), load(tmp_path / "together")
    for method, other in zip(expected["methods"], found["methods"], strict=True):
        assert other["losses"] == pytest.approx(method["losses"], rel=1e-5)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
@pytest.mark.parametrize("step", [0, 5], ids=["first evaluation", "last evaluation"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_run_stops_the_whole_comparison(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, capfd, step: int, sent: signal.Signals
) -> None:
    evaluate, evaluations = Trainer.evaluate, list[int]()

    def interrupted(trainer: Trainer) -> None:
        evaluations.append(trainer.step)
        if evaluations.count(step) == 1 and trainer.step == step:
            os.kill(os.getpid(), sent)
        evaluate(trainer)

    monkeypatch.setattr(Trainer, "evaluate", interrupted)
    arguments = ("none", "go", "--seeds", "2", "--steps", "5", "--jobs", "1")
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *arguments)[2:])
    with pytest.raises(SystemExit, match="interrupted: every run has saved a checkpoint; the same command continues"):
        main()
    assert capfd.readouterr().err.count("stopping after the current steps; press Ctrl-C again") == 1
    assert evaluations == ([0] if step == 0 else [0, 5])
    assert not (tmp_path / ".stop").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs process groups")
def test_signal_to_the_group_while_workers_start_is_an_interruption(
    token_cache: Path, corpus: Path, tmp_path: Path
) -> None:
    arguments = command(tmp_path, corpus, "none", "go", "--seeds", "2", "--steps", "5", "--jobs", "2")
    with subprocess.Popen(arguments, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "0 runs kept, 4 to do\n":
                break
        time.sleep(0.5)  # the workers import torch
        os.killpg(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == 1
    assert said.splitlines()[-1] == INTERRUPTED


FAILING = ("none", "go", "--seeds", "2", "--steps", "5", "--jobs", "1")


@pytest.mark.parametrize("name", ["runs", "records/compare"])
def test_file_in_the_place_of_a_folder_is_told_before_any_work(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, capsys, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *FAILING)[2:])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value) == (
        f"error: {tmp_path / name} must be a folder, got a file; move the file, or choose another folder"
    )
    assert capsys.readouterr().err == ""


NO_SPACE = OSError(errno.ENOSPC, "cannot write the checkpoint of step 5 (No space left on device)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NO_SPACE, f"{NO_SPACE.strerror}; when the cause is removed, the same command continues from here"),
        (ValueError("batch_size must be even"), "batch_size must be even"),
        (MemoryError(), "MemoryError; with more memory, or fewer --jobs, the same command continues from here"),
    ],
    ids=["OSError", "ValueError", "MemoryError"],
)
def test_error_of_a_run_is_one_line_and_advises_to_try_again_only_where_that_helps(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, capsys, error: Exception, words: str
) -> None:
    monkeypatch.setattr(Trainer, "update", Mock(side_effect=error))
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *FAILING)[2:])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value) == f"4 runs failed, the first of them: none, seed 0: {words}"
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("error", "debug"), [(KeyError("bug"), "0"), (ValueError("bug"), "1")])
def test_traceback_is_shown_of_an_unexpected_error_and_on_request(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, error: Exception, debug: str
) -> None:
    monkeypatch.setattr(Trainer, "update", Mock(side_effect=error))
    monkeypatch.setenv("GOMHC_DEBUG", debug)
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *FAILING)[2:])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value).startswith("Traceback")
    assert str(stop.value).splitlines()[-1].startswith("4 runs failed, the first of them: none, seed 0: ")
    assert "the same command" not in str(stop.value)


def test_run_with_a_damaged_checkpoint_is_set_aside_and_starts_again(
    token_cache: Path, corpus: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(sys, "argv", command(tmp_path, corpus, *FAILING)[2:])
    with monkeypatch.context() as patch:
        patch.setattr(StopAtFile, "wants_stop", lambda _: True)
        with pytest.raises(SystemExit, match="interrupted"):
            main()
    (weights,) = tmp_path.glob("runs/*/checkpoints/step-00000001/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    run = weights.parents[2]
    main()
    said, aside = capsys.readouterr().err, run.with_name(f"damaged-{run.name}")
    assert "model.safetensors has changed); no other checkpoint of this run can be read" in said
    assert f"{run} is now {aside}; starting none, seed 0 from step 0" in said
    assert aside.is_dir()
    assert len(list(tmp_path.glob("records/compare/*.json"))) == 4


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_torchrun_tells_an_interruption_once_and_no_failure(token_cache: Path, corpus: Path, tmp_path: Path) -> None:
    """Every process sends the signal to itself, because torchrun adds a traceback to one of its own."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED_BY_ITSELF)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    arguments = command(tmp_path / "out", corpus, "none", "go", "--seeds", "2", "--steps", "5")[3:]
    done = subprocess.run([*launch, *arguments], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(INTERRUPTED) == 1
    assert done.stderr.count("stopping after the current steps") == 1
    assert "FAILED" not in done.stderr
    assert not (tmp_path / "out" / ".stop").exists()
    assert len(list(tmp_path.glob("out/runs/*"))) == 1


INTERRUPTED_BY_ITSELF = """
import os, signal
from gomhc.lab.cli import main
from gomhc.lab.training.loop import Trainer

update = Trainer.update

def interrupted(trainer):
    if trainer.step == 2:
        os.kill(os.getpid(), signal.SIGINT)
    update(trainer)

Trainer.update = interrupted
main()
"""
