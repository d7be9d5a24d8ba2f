"""What of a run survives its death? One folder a checkpoint: whole, or not there.

    RUN/checkpoints/step-00000100/
        model.safetensors       weights by name
        optimizer.safetensors   the optimizer's state, by name of the weight
        state.json              step, recipe, tokenizer, versions, and the SHA-256 of the two others

A folder is written beside its place and moved there when everything is on the disk. Nothing in it is executed when it
is read. Tensors are whole, however many processes wrote them.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gomhc.data.download import sha256
from gomhc.training.recipe import Recipe
from gomhc.version import __version__

FORMAT = "gomhc checkpoint 1"
WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_PARTIAL, _OLD = ".partial-", ".old-"


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on."""

    step: int
    """Updates that were made."""
    recipe: Recipe
    tokenizer: dict[str, Any]
    """Its description."""
    data: str
    """Fingerprint of the tokens."""
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def folder_of(run: Path, step: int) -> Path:
    """Where the checkpoint of that step is."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps(run: Path) -> list[int]:
    """The steps of which a run has checkpoints, in order."""
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, then delete the oldest beyond `recipe.keep`; a failure leaves all that were there."""
    target = folder_of(run, checkpoint.step)
    partial = target.with_name(f"{_PARTIAL}{target.name}")
    try:
        remove_leftovers(run)
        partial.mkdir(parents=True)
        _write(partial, checkpoint)
        if target.exists():  # the same step of the same run, resumed: the same content
            shutil.rmtree(_moved_away(target))
        partial.rename(target)
        _flush(target.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        found = steps(run)
        last = f"the last good one is {folder_of(run, found[-1])}" if found else "there is none yet"
        raise OSError(
            error.errno, f"cannot write the checkpoint of step {checkpoint.step} ({error.strerror}); {last}"
        ) from error
    for step in steps(run)[: -checkpoint.recipe.keep]:
        shutil.rmtree(_moved_away(folder_of(run, step)))
    return target


def load(path: Path) -> Checkpoint:
    """The checkpoint in this folder, or the newest of this run; damage is an error that says what to do."""
    folder = path if (path / STATE).exists() else _newest(path)
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            found = state.get("format") if isinstance(state, dict) else None
            raise ValueError(f"it should be of the format {FORMAT!r}, and is of {found!r}")
        for name, digest in state["files"].items():
            if sha256(folder / name) != digest:
                raise ValueError(f"{name} is not what was written")
        return Checkpoint(
            step=state["step"],
            recipe=Recipe.from_dict(state["recipe"]),
            tokenizer=state["tokenizer"],
            data=state["data"],
            weights=load_file(folder / WEIGHTS),
            optimizer=load_file(folder / OPTIMIZER),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ValueError(_damaged(path, folder, error)) from error


def remove_leftovers(run: Path) -> None:
    """What a killed process left half written or half deleted."""
    for prefix in (_PARTIAL, _OLD):
        for path in (run / "checkpoints").glob(f"{prefix}*"):
            shutil.rmtree(path)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(checkpoint.weights))
    (folder / OPTIMIZER).write_bytes(safetensors.torch.save(checkpoint.optimizer))
    state = {
        "format": FORMAT,
        "step": checkpoint.step,
        "recipe": asdict(checkpoint.recipe),
        "tokenizer": checkpoint.tokenizer,
        "data": checkpoint.data,
        "versions": {"gomhc": __version__, "torch": torch.__version__},
        "files": {name: sha256(folder / name) for name in (WEIGHTS, OPTIMIZER)},
    }
    (folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
    for name in (WEIGHTS, OPTIMIZER, STATE):
        _flush(folder / name)
    _flush(folder)


def _flush(path: Path) -> None:
    """Onto the disk, so that what is moved into place is whole even if the machine stops."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _moved_away(folder: Path) -> Path:
    """A folder is renamed before it is deleted: what is half deleted does not look like a checkpoint."""
    away = folder.with_name(f"{_OLD}{folder.name}")
    folder.rename(away)
    return away


def _newest(run: Path) -> Path:
    found = steps(run)
    if not found:
        raise ValueError(f"{run} holds no run of gomhc train: there is no checkpoint in {run / 'checkpoints'}")
    return folder_of(run, found[-1])


def _damaged(path: Path, folder: Path, error: Exception) -> str:
    older = [step for step in steps(path) if folder_of(path, step) != folder]
    way_out = f"delete it to go on from step {older[-1]}" if older else "there is no other one in this run"
    return f"the checkpoint {folder} cannot be read ({error}); {way_out}"
