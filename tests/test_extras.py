"""Each extra brings what its commands need, and a command says which extra it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import brought_by, extras, hidden_without, hide

from gomhc.lab.cli import EXTRAS

ROOT = Path(__file__).parents[1]
SMALL = "--num-layers 1 --num-heads 1 --num-channels 8 --context-length 8 --sample-tokens 3 --evaluation-windows 2"
TRAIN = f"train --corpus corpus.txt --steps 1 --batch-size 2 --out run {SMALL}"
COMPARE = f"compare none go --corpus corpus.txt --steps 2 --seeds 2 --batch-size 2 {SMALL} --out compared"
JUDGE = "judge stories.jsonl --model j --base-url http://127.0.0.1:9/v1"
COMMANDS = {
    ("cli",): ["version", "doctor", "exactness --seconds 0", "bench layer --rounds 1 --tokens 8", "inspect --help"],
    ("train",): [TRAIN, "sample run --tokens 3", "inspect run --text boat"],
    ("report",): ["reproduce --list", "reproduce --only parameters --jobs 2", COMPARE],
    ("judge",): [f"{JUDGE} --dry-run", "judge --help"],
    ("cli", "hf"): ["inspect --help"],
}
"""Extras -> commands that must work with these alone."""
RUN = """
import json, sys
from gomhc.lab import cli
for arguments in json.loads(sys.argv.pop()):
    sys.argv[1:] = arguments.split()
    print("gomhc", arguments, flush=True)
    try:
        cli.main()
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus and stories."""
    (tmp_path / "corpus.txt").write_text("<|endoftext|>".join(["A small boat went out to sea."] * 30))
    (tmp_path / "stories.jsonl").write_text('{"opening": "Once", "completion": " more"}\n')
    return tmp_path


def run(folder: Path, code: str, commands: list[str], python: str | Path = sys.executable):
    environment = {**os.environ, "GOMHC_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [python, "-c", code + RUN, json.dumps(commands)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_command_and_every_extra_of_the_command_line_is_tested() -> None:
    tested = {command.split()[0] for commands in COMMANDS.values() for command in commands}
    assert tested == set(EXTRAS)
    assert {name for names in COMMANDS for name in names} == set(extras()) - {"all", "dev", "docs", "gpu"}


@pytest.mark.parametrize("names", COMMANDS, ids="-".join)
def test_an_extra_alone_runs_its_commands(folder: Path, names: tuple[str, ...]) -> None:
    hidden = hidden_without(brought_by(*names))
    assert {"jaxtyping", "pytest"} <= set(hidden)
    done = run(folder, hide(hidden), ["--help", *COMMANDS[names]])
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("package", "command", "line"),
    [
        ("tyro", "version", "the gomhc command needs tyro; install it with: pip install 'gomhc[cli]'"),
        ("rich", "version", "the gomhc command needs rich; install it with: pip install 'gomhc[cli]'"),
        ("safetensors", TRAIN, "gomhc train needs safetensors; install it with: pip install 'gomhc[train]'"),
        ("platformdirs", "sample run", "gomhc sample needs platformdirs; install it with: pip install 'gomhc[train]'"),
        ("safetensors", "inspect .", "a run of gomhc train needs safetensors; install it with: pip install "
         "'gomhc[train]'"),
        ("transformers", "inspect model", "a model that save_pretrained wrote needs transformers; install it with: "
         "pip install 'gomhc[hf]'"),
        ("joblib", "reproduce", "gomhc reproduce needs joblib; install it with: pip install 'gomhc[report]'"),
        ("safetensors", "reproduce", "gomhc reproduce needs safetensors; install it with: pip install 'gomhc[report]'"),
        ("scipy", COMPARE, "gomhc compare needs scipy; install it with: pip install 'gomhc[report]'"),
        ("joblib", COMPARE, "gomhc compare needs joblib; install it with: pip install 'gomhc[report]'"),
        ("openai", JUDGE, "gomhc judge needs openai; install it with: pip install 'gomhc[judge]'"),
        ("scipy", JUDGE, "gomhc judge needs scipy; install it with: pip install 'gomhc[judge]'"),
        ("safetensors", JUDGE, "gomhc judge needs safetensors; install it with: pip install 'gomhc[judge]'"),
    ],
)  # fmt: skip
def test_a_missing_package_is_one_line_that_names_the_extra(folder: Path, package, command, line) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    before = sorted(folder.iterdir())
    done = run(folder, hide([package]), [command])
    assert done.returncode == 1
    assert done.stderr == f"{line}\n"
    assert [path for path in sorted(folder.iterdir()) if path.name != "judge.sqlite"] == before


def test_help_imports_no_command(folder: Path) -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    loaded = run(folder, code, ["--help"]).stderr.split()
    assert not {f"gomhc.lab.cli.{name}" for name in EXTRAS} & set(loaded)


@pytest.mark.slow
@pytest.mark.parametrize("names", COMMANDS, ids="-".join)
def test_a_fresh_environment_with_an_extra_alone_runs_its_commands(folder: Path, names: tuple[str, ...]) -> None:
    python = folder / "venv" / "bin" / "python"
    options = ("--quiet", "--constraint", str(ROOT / "constraints.txt"))
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", *options, f"{ROOT}[{','.join(names)}]"], check=True)
    done = run(folder, "", ["--help", *COMMANDS[names]], python)
    assert done.returncode == 0, done.stderr[-2000:]
