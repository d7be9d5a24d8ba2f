"""A mistake on the command line is one line: the option, what was expected, what came."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import JUDGE, LISTED, TRAIN, random_command_line, random_mixing

from gomhc import Parametrization
from gomhc.birkhoff import as_mixing
from gomhc.lab import cli
from gomhc.lab.data.story_grammar import stories

pytestmark = pytest.mark.unchecked  # or values of other types would meet the tests' own checks first


def gomhc(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """What the command exits with, standard output, and standard error as a shell would show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gomhc", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
    printed = capfd.readouterr()
    if isinstance(code, str):
        return 1, printed.out, f"{printed.err}{code}\n"
    return code, printed.out, printed.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.txt").write_text("<|endoftext|>".join(stories(30)))
    (folder / "stories.jsonl").write_text('{"opening": "Once", "completion": " more"}\n')
    arguments = TRAIN.replace("--steps 1", "--steps 6").replace("--out new", "--out run").split()
    environment = {**os.environ, "GOMHC_CACHE": str(folder / "cache")}
    subprocess.run([sys.executable, "-m", "gomhc", *arguments], cwd=folder, env=environment, check=True)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GOMHC_CACHE", str(folder / "cache"))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts]
    return {str(path): path.read_bytes() for path in found if path.name not in (".lock", "judge.sqlite")}


def test_each_listed_mistake_is_one_line_and_changes_nothing(here: Path, capfd) -> None:
    before = files(here)
    for arguments in LISTED:
        code, _, err = gomhc(capfd, *arguments)
        assert code not in (0, None), arguments
        assert re.fullmatch(r"(warning: .*\n)*(error|gomhc judge): .+\n", err), (arguments, err)
        assert "tyro" not in err
        assert files(here) == before, arguments


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (f"{TRAIN} --num-heads 0", "--num-heads must be a whole number of at least 1, got 0"),
        (f"{TRAIN} --num-heads abc", "--num-heads must be a whole number, got 'abc'"),
        (f"{TRAIN} --learning-rate abc", "--learning-rate must be a number, got 'abc'"),
        (f"{TRAIN} --weight-decay -1", "--weight-decay must be a finite number, at least 0; got -1.0"),
        (f"{TRAIN} --precision float8", "--precision must be one of float32, bfloat16, got 'float8'"),
        (f"{TRAIN} --device tpu", "--device must be one of auto, cpu, cuda, got 'tpu'"),
        (f"{TRAIN} --steps", "--steps needs a value, got none"),
        (
            f"{TRAIN} --mixing go:initial_leak=abc",
            "initial_leak must be a finite number, at least 1e-10 and at most 0.5; got 'abc'",
        ),
        (
            f"{TRAIN} --mixing kronecker:factors=2",
            "factors must be whole numbers or parametrizations as in factors=(2, 2), got 2",
        ),
        (f"{TRAIN} --mixing average:term=3", "term must be a parametrization or its key, such as 'go', got 3"),
        (f"{TRAIN} --mixing sinkhorn-v4:epsilon=abc", "epsilon must be a finite number, at least 0; got 'abc'"),
        (f"{TRAIN} --stpes 4", "unknown option --stpes; perhaps you meant --steps"),
        ("sample run --top-k 0", "--top-k must be a whole number of at least 1, got 0"),
        ("sample run --temperature nan", "--temperature must be a finite number, at least 0; got nan"),
        ("sample run --tokens -5", "--tokens must be a whole number of at least 0, got -5"),
        (f"{JUDGE} --input-price nan --output-price 1", "--input-price must be a finite number, at least 0; got nan"),
        (f"{JUDGE} --temperature abc", "--temperature must be a number, got 'abc'"),
        ("bench layer --rounds 0", "--rounds must be a whole number of at least 1, got 0"),
        ("reproduce --jobs 0", "--jobs must be a whole number of at least 1, got 0"),
        (f"{TRAIN} --num-streams 0", "--num-streams must be a whole number of at least 1, got 0"),
        (f"{TRAIN} --num-heads 4 --num-channels 30", "--num-channels must be a multiple of num_heads=4, got 30"),
        (
            f"{TRAIN} --mixing none:as-wide",
            "--mixing must be none or none:as-wide=MIXING, as in none:as-wide=go; got 'none:as-wide'",
        ),
        (
            "compare none go --tune learning_rate",
            "--tune must be an option and two values or more, learning_rate=1e-3,2e-3; got 'learning_rate'",
        ),
        (
            "compare none go --tuning-steps 3",
            "--tuning-seeds and --tuning-steps work only together with --tune; add --tune",
        ),
        ("doctor --json numbers.json", "--json works only together with --gpu; add --gpu"),
        ("inspect run --text hello --file corpus.txt", "give --text or --file, not both"),
        ("inspect run --text a", "the text must have at least two tokens, got 1; give a longer text"),
        ("inspect run --html page --json page", "--html and --json must be different files, got page for both"),
        (
            "inspect corpus.txt",
            "corpus.txt is a file; give the folder of a run of `gomhc train`, or one that save_pretrained wrote",
        ),
    ],
)
def test_the_line_names_the_option_what_was_expected_and_what_came(
    here: Path, capfd, arguments: str, line: str
) -> None:
    code, _, err = gomhc(capfd, *arguments.split())
    assert code in (1, 2)
    assert err == f"error: {line}\n"


def test_the_way_out_of_other_mistakes_is_told(here: Path, capfd) -> None:
    for arguments, words in (
        ("reproduce --only", "--only must name at least one experiment, got none; choose from exactness, gain, "),
        ("train --resume run/checkpoints/step-00000006", "is a checkpoint; expected the folder of a run, such as run"),
        (
            "compare --tune learning_rate=1e-3,2e-3 none go",
            "at least two methods, such as none and go, before all options",
        ),
        ("compare none go --corpus corpus.txt --context-length 8 --records corpus.txt", "but a file is there"),
        ("compare none go --tune steps=1,2", "--tune must vary one of num_streams, start, "),
        ("trian", "unknown argument trian; available subcommands: version, doctor, "),
        ("train novels", "available subcommands: stories-tiny, shakespeare-char, tinystories-30m"),
        (f"{TRAIN} --mixing go:expressivity=999", "num_streams * expressivity must be at most 512, got 4 * 999"),
        (
            "reproduce --out corpus.txt",
            "corpus.txt must be in a folder, or be one, but a file is there; choose another path",
        ),
    ):
        assert words in gomhc(capfd, *arguments.split())[2], arguments


def test_a_reader_that_has_read_enough_is_no_mistake() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-c", "from gomhc.lab.cli import main; main()", "version"]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


def test_with_gomhc_debug_the_traceback_is_shown(here: Path, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMHC_DEBUG", "0")
    assert gomhc(capfd, *TRAIN.split(), "--num-heads", "0")[2].startswith("error: ")
    monkeypatch.setenv("GOMHC_DEBUG", "1")
    with pytest.raises(ValueError, match="num_heads must be"):
        gomhc(capfd, *TRAIN.split(), "--num-heads", "0")
    assert "GOMHC_DEBUG=1 shows tracebacks" in gomhc(capfd, "--help")[1]


def test_random_options_of_mixings_are_values_or_value_errors() -> None:
    rng, refused = random.Random(0), 0
    for _ in range(2000):
        try:
            assert isinstance(as_mixing(random_mixing(rng), 4), Parametrization)
        except ValueError:
            refused += 1
    assert 500 < refused < 1900


def test_random_command_lines_run_or_are_refused_in_one_line(here: Path, capfd) -> None:
    rng = random.Random(1)
    for _ in range(25):
        arguments = random_command_line(rng)
        code, _, err = gomhc(capfd, *arguments)
        errors = [line for line in err.splitlines() if line.startswith(("error", "gomhc judge"))]
        assert len(errors) == (code not in (0, None)), (arguments, err)
