"""Runs, locks and downloads work with the rules of Windows for files, which are simulated here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import windows
from installed import hide
from small_runs import small_recipe

from gomhc.lab import workers
from gomhc.lab.data.download import Remote
from gomhc.lab.files import flush, remove, write_atomically
from gomhc.lab.lock import InUse, lock
from gomhc.lab.training import Execution, checkpoint, load_run, resume, train

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the simulation asks /proc what is open")
CPU = Execution(device="cpu")


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    windows.simulate(monkeypatch)


def test_files_are_written_and_flushed_and_folders_are_not_opened(tmp_path: Path, on_windows) -> None:
    write_atomically(tmp_path / "new" / "file", "text\n")
    assert (tmp_path / "new" / "file").read_bytes() == b"text\n"
    flush(tmp_path)


def test_a_run_is_saved_and_resumed(tmp_path: Path, monkeypatch, on_windows) -> None:
    """A resumed run holds the weights that it loaded, and deletes their files when it saves the next checkpoints."""
    monkeypatch.setenv("GOMHC_CACHE", str(tmp_path / "cache"))
    recipe, run = small_recipe(tmp_path / "corpus.txt", keep=2), tmp_path / "run"
    train(recipe, run, CPU)
    uninterrupted = load_run(run).model.state_dict()
    assert checkpoint.steps(run) == [4, 6]
    remove(checkpoint.folder_of(run, 6))
    loaded = checkpoint.load(run)
    assert resume(run, CPU) == recipe.steps
    assert all(torch.equal(tensor, uninterrupted[name]) for name, tensor in load_run(run).model.state_dict().items())
    remove(checkpoint.folder_of(run, loaded.step))


def test_the_lock_excludes_others_and_is_deleted_when_it_is_free(tmp_path: Path, on_windows) -> None:
    with lock(tmp_path / "l", "the folder"):
        with pytest.raises(InUse, match=f"in use by process {os.getpid()}"), lock(tmp_path / "l", "the folder"):
            pass
        assert (tmp_path / "l").exists()
    assert not (tmp_path / "l").exists()
    with lock(tmp_path / "l", "the folder"):
        pass


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch, on_windows) -> None:
    monkeypatch.setenv("GOMHC_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match="cannot download"):
        Remote("file", "http://127.0.0.1:9/file", "0" * 64).fetch()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_waits_for_the_end_of_its_parent_by_the_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kernel32 = SimpleNamespace(
        OpenProcess=lambda *arguments: calls.append(arguments) or 77,
        WaitForSingleObject=lambda *arguments: calls.append(arguments),
    )
    monkeypatch.setattr("ctypes.windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(workers, "sys", SimpleNamespace(platform="win32"))
    workers._wait_for_end(4242)
    assert calls == [(workers.SYNCHRONIZE, False, 4242), (77, workers.INFINITE)]


def test_the_command_runs_without_modules_of_unix_in_a_pipe_of_another_encoding() -> None:
    code = hide(["fcntl", "resource", "pwd", "grp", "termios", "triton"])
    code += "sys.argv = ['gomhc', 'reproduce', '--list']; from gomhc.lab import cli; cli.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"Karpelevi? regions" in done.stdout
