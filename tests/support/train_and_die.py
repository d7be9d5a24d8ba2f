"""Train the recipe in a JSON file and be killed on the way: `train_and_die.py RUN RECIPE.json WHEN [PARALLEL]`.

WHEN is `never`, `step:7` (before that update), or `write:6` (in the middle of the checkpoint of that step). A run that
exists is resumed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from gomhc.lab.training import Execution, Recipe, checkpoint, loop, resume, train

run, recipe, when = Path(sys.argv[1]), Recipe(**json.loads(Path(sys.argv[2]).read_text())), sys.argv[3]
execution = Execution(device="cpu", parallel=sys.argv[4] if len(sys.argv) > 4 else "ddp")  # type: ignore[arg-type]
kind, _, number = when.partition(":")

update, flush = loop.Trainer.update, checkpoint.flush


def dying_update(trainer: loop.Trainer) -> None:
    if trainer.step == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    update(trainer)


def dying_flush(path: Path) -> None:
    if path.parent.name == f".partial-step-{int(number):08d}" and path.name == checkpoint.OPTIMIZER:
        path.write_bytes(path.read_bytes()[:100])  # torn
        os.kill(os.getpid(), signal.SIGKILL)
    flush(path)


if kind == "step":
    loop.Trainer.update = dying_update  # type: ignore[method-assign]
elif kind == "write":
    checkpoint.flush = dying_flush
torch.set_num_threads(1)
done = resume(run, execution) if checkpoint.steps(run) else train(recipe, run, execution)
print(f"done {done}")
