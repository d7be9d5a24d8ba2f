"""Processes that train together use their own GPUs, and one of them prepares the data."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from gomhc.lab.training.distributed import World, world

PREPARE = """
import os, sys, time
from pathlib import Path
from gomhc.lab.data import corpora
from gomhc.lab.data.download import Remote
from gomhc.lab.files import sha256
from gomhc.lab.training import Recipe, distributed, loop

text, log = Path(sys.argv[1]), Path(sys.argv[2])
corpora.SHAKESPEARE = Remote("shakespeare.txt", text.as_uri(), sha256(text))
download, encode = Remote._download, loop.prepare.__globals__["_encode"]

def logged(what, function):
    def call(*arguments):
        with log.open("a") as file:
            file.write(f"{what} {os.environ['RANK']}\\n")
        time.sleep(0.5)
        return function(*arguments)
    return call

Remote._download = logged("download", download)
loop.prepare.__globals__["_encode"] = logged("encode", encode)
with distributed.world("cpu") as processes:
    data = loop._dataset(Recipe(corpus="shakespeare", batch_size=2, context_length=8), processes, None)
    sys.stdout.write(f"{data.fingerprint}\\n")  # at once: print would write the end of the line by itself
"""


def test_a_process_takes_its_gpu_before_it_joins_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(("set_device", device)))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: calls.append((backend, timeout)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append(("destroyed",)))
    with world("auto") as processes:
        assert processes == World(3, 4, torch.device("cuda:1"))
    (first, device), (backend, timeout), last = calls
    assert (first, device, backend, last) == ("set_device", torch.device("cuda:1"), "nccl", ("destroyed",))
    assert isinstance(timeout, timedelta)
    assert timeout >= timedelta(hours=1)  # or waiting for a download would end the run


def test_only_the_main_process_downloads_and_tokenizes(tmp_path: Path) -> None:
    script, text, log = (tmp_path / name for name in ("prepare.py", "text.txt", "log"))
    script.write_text(PREPARE)
    text.write_text("<|endoftext|>".join(["A small boat went out to sea."] * 30))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "GOMHC_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    arguments = [str(script), str(text), str(log)]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert log.read_text() == "download 0\nencode 0\n"
    first, second = done.stdout.split()
    assert first == second
