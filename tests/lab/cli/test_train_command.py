"""`gomhc train` and `gomhc sample`, as their user meets them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

import gomhc
from gomhc.lab import cli
from gomhc.lab.cli import training_progress
from gomhc.lab.cli.training_progress import TrainingProgress
from gomhc.lab.recipes import RECIPES
from gomhc.lab.training import Recipe, checkpoint
from gomhc.lab.training.history import Metrics
from gomhc.lab.training.loop import Trainer

SIZES = {"num-layers": 1, "num-heads": 1, "num-channels": 8, "context-length": 16, "sample-tokens": 8}
SMALL = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))] + ["--evaluation-windows", "2"]


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOMHC_CACHE", str(tmp_path_factory.getbasetemp() / "train-command-cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gomhc_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> tuple[object, str, str]:
        """What it exits with (None for success), standard output, standard error."""
        monkeypatch.setattr("sys.argv", ["gomhc", *arguments])
        code: object = None
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_train_without_a_recipe_trains_the_default_and_prints_a_sample(gomhc_command, folder: Path) -> None:
    code, out, err = gomhc_command("train", "--steps", "2", *SMALL)
    assert code in (None, 0)
    assert out.splitlines() == ["wrote runs/go-1 (2 steps)", "gomhc sample runs/go-1"]
    assert re.search(r"parameters, 2 steps of 256 tokens, mixing go\n", err)
    assert re.search(r"\[2/2\] loss \d\.\d+, [\d,]+ tokens/s, 0 s left\n", err)
    assert re.search(r"step 2: validation loss \d\.\d+, mean distance of mixes from the identity 0\.\d+\n    \S", err)
    assert checkpoint.load(folder / "runs/go-1").recipe.corpus == "stories"
    gomhc_command("train", "--steps", "1", *SMALL)
    assert (folder / "runs/go-2").exists()


def test_a_loss_that_is_not_finite_is_told_in_one_line(gomhc_command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "gradient_norm", lambda trainer: float("nan"))
    code, _, _ = gomhc_command("train", "--steps", "1", *SMALL)
    assert re.fullmatch(r"error: at step 0 the loss is \d\.\d+ and its gradient's norm nan.*", str(code))


def test_named_options_do_what_they_say(gomhc_command, folder: Path) -> None:
    options = ["--out", "here", "--mixing", "go:expressivity=1", "--steps", "1", "--seed", "7"]
    gomhc_command("train", "stories-tiny", *options, *SMALL)
    recipe = checkpoint.load(folder / "here").recipe
    assert (recipe.mixing, recipe.steps, recipe.seed) == ("go:expressivity=1", 1, 7)
    assert recipe.parametrization == gomhc.Orthostochastic(num_streams=4, expressivity=1)


def test_resume_goes_on(gomhc_command, folder: Path) -> None:
    gomhc_command("train", "--out", "run", "--steps", "4", "--save-every", "2", *SMALL)
    shutil.rmtree(checkpoint.folder_of(folder / "run", 4))
    code, out, err = gomhc_command("train", "--resume", "run")
    assert code in (None, 0)
    assert "resumed at step 2" in err
    assert "wrote run (4 steps)" in out


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_a_stopped_run_says_how_to_go_on_and_is_no_success(gomhc_command, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(training_progress, "say_at_once", said.append)
    with patch.object(TrainingProgress, "stepped", _interrupting(3)):
        code, out, _ = gomhc_command("train", "--out", "run", "--steps", "6", *SMALL)
    assert code == "stopped at step 4 of 6; to continue: gomhc train --resume run"
    assert "wrote" not in out
    assert said == ["stopping after this step; press Ctrl-C again to stop without saving"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_a_second_interrupt_names_what_was_saved(gomhc_command) -> None:
    with patch.object(TrainingProgress, "stepped", _interrupting(3, times=2)):
        code, _, _ = gomhc_command("train", "--out", "run", "--steps", "6", "--save-every", "2", *SMALL)
    assert code == "interrupted; to continue from step 2: gomhc train --resume run"
    with patch.object(TrainingProgress, "opened", side_effect=KeyboardInterrupt):
        code, _, _ = gomhc_command("train", "--out", "other", "--steps", "6", *SMALL)
    assert code == "interrupted; no checkpoint was saved"


def _interrupting(step: int, times: int = 1) -> Callable[[TrainingProgress, Metrics], None]:
    """A method `stepped` that sends Ctrl-C at this step."""

    def stepped(self: TrainingProgress, record: Metrics) -> None:
        if record["step"] == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return stepped


def test_sample_streams_the_same_text_for_the_same_seed(gomhc_command) -> None:
    gomhc_command("train", "--out", "run", "--steps", "1", *SMALL)
    first, again, other = (
        gomhc_command("sample", "run", "--prompt", "Once", "--tokens", "30", "--seed", seed)[1] for seed in "001"
    )
    assert first.startswith("Once")
    assert first == again != other
    likeliest = {gomhc_command("sample", "run", "--temperature", "0", "--seed", seed)[1] for seed in "01"}
    assert len(likeliest) == 1
    only_one = gomhc_command("sample", "run", "--top-k", "1", "--tokens", "500")[1]
    assert {only_one} == likeliest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "novels"), "stories-tiny, shakespeare-char, tinystories-30m"),
        (("train", "--stpes", "3"), "unknown option --stpes; perhaps you meant --steps"),
        (("train", "--steps", "many"), "--steps"),
        (("train", "--mixing", "magic"), "the mixing must be one of go, "),
        (("train", "--corpus", "nowhere.txt"), "a text file, got 'nowhere.txt'"),
        (("train", "--resume", "nowhere"), "there is no folder nowhere; give the folder of a run of gomhc train"),
        (("train", "--resume", "nowhere", "--steps", "3"), "--resume can be combined only with"),
        (("sample", "nowhere"), "there is no folder nowhere; give the folder of a run of gomhc train"),
    ],
)
def test_mistake_is_a_message_and_no_traceback(
    gomhc_command, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = gomhc_command(*arguments)
    assert code not in (None, 0)
    printed = f"{out}{err}{code}"
    assert message in printed
    assert "Traceback" not in printed
    assert list(folder.iterdir()) == []


def test_help_lists_the_recipes_and_what_they_are(gomhc_command) -> None:
    printed = gomhc_command("train", "--help")[1]
    for name in RECIPES:
        assert name in printed
    options = gomhc_command("train", "tinystories-30m", "--help")[1]
    assert re.search(r"--steps INT\s+Number of weight updates\. \(default: 20000\)", options)


@pytest.mark.parametrize("command", [("train", "stories-tiny"), ("compare",)])
def test_help_breaks_no_line_in_the_middle_of_a_sentence(command: tuple[str, ...]) -> None:
    arguments = [sys.executable, "-m", "gomhc", *command, "--help"]
    environment = os.environ | {"COLUMNS": "1000"}
    printed = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    lines = [line.strip(" │") for line in printed.splitlines()]
    assert not [pair for pair in pairwise(lines) if re.match("[a-z]+ ", pair[1]) and pair[0][-1:] not in (".", "")]


def test_help_of_mixing_names_every_method(gomhc_command) -> None:
    printed = gomhc_command("train", "stories-tiny", "--help")[1]
    words = set(re.findall(r"[\w-]+", printed))
    assert words >= {"none", *gomhc.PARAMETRIZATIONS}


def test_paper_recipe_is_the_papers_table() -> None:
    """App. G.1, as printed."""
    assert RECIPES["tinystories-30m"]() == Recipe(
        corpus="tinystories",
        tokenizer="gpt2",
        num_layers=6,
        num_heads=6,
        num_channels=384,
        context_length=512,
        dropout=0.1,
        learning_rate=1e-3,
        final_learning_rate=1e-4,
        coefficient_learning_rate=None,
        warmup_steps=500,
        weight_decay=0.1,
        batch_size=32,
        accumulation=4,
        steps=20_000,
        precision="bfloat16",
        evaluate_every=500,
        evaluation_windows=256,
        sample_tokens=150,
        save_every=500,
    )
