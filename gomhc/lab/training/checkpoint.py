"""Checkpoints: one folder each, which is complete or absent.

    RUN/checkpoints/step-00000100/
        model.safetensors       weights by name
        optimizer.safetensors   the optimizer's state, by name of the weight
        state.json              step, recipe, tokenizer, versions, and the SHA-256 of the two others; sealed

A checkpoint is written to a temporary folder, which is renamed when everything is on disk. Reading it executes nothing
and checks everything. Tensors are unsharded, whatever the number of processes.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gomhc.checks import require_whole
from gomhc.lab.data.tokenizers import BytePairTokenizer, from_description
from gomhc.lab.files import Damaged, flush, read, remove, seal, sha256, unseal
from gomhc.lab.training.recipe import Recipe
from gomhc.version import __version__

FORMAT = "gomhc checkpoint 2"
WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
EMBEDDING = "tokens.weight"
"""Name of the tensor with one row per token."""
_PARTIAL, _OLD, _DAMAGED = ".partial-", ".old-", "damaged-"
_NAME = re.compile(r"step-([0-9]{8,})")
_EARLIER = b'"format": "gomhc checkpoint 1"'
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""File system errors that mean an incomplete checkpoint; other errors may be temporary."""
ATTEMPTS = 10
"""How often the checkpoints of a run are listed again, because a run in training deletes its oldest ones."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to continue a run."""

    step: int
    """Number of updates that were made."""
    recipe: Recipe
    tokenizer: dict[str, Any]
    """Description of the tokenizer."""
    data: str
    """Fingerprint of the tokens."""
    history: tuple[int, str]
    """Length and SHA-256 of metrics.jsonl when the checkpoint was written."""
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def folder_of(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of that step."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps(run: Path) -> list[int]:
    """Return the steps at which a run has checkpoints, in order."""
    folders = {path for path in (run / "checkpoints").glob("step-*") if path.is_dir()}
    numbers = {int(name[1]) for path in folders if (name := _NAME.fullmatch(path.name))}
    return sorted(step for step in numbers if folder_of(run, step) in folders)


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, then delete the oldest beyond `recipe.keep`; a failure leaves the existing ones."""
    target = folder_of(run, checkpoint.step)
    partial = target.with_name(f"{_PARTIAL}{target.name}")
    try:
        remove_surplus(run, checkpoint.recipe.keep)
        partial.mkdir(parents=True)
        _write(partial, checkpoint)
        if target.exists():  # a resumed run has reached the same step, with the same content
            remove(_moved(target, _OLD))
        partial.rename(target)
        flush(target.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        kept = steps(run)
        last = f"the last good checkpoint is {folder_of(run, kept[-1])}" if kept else "there is no other checkpoint"
        raise OSError(
            error.errno, f"cannot write the checkpoint of step {checkpoint.step} ({error.strerror}); {last}"
        ) from error
    remove_surplus(run, checkpoint.recipe.keep)
    return target


def load(path: Path) -> Checkpoint:
    """Load the checkpoint in this folder, or the newest readable one of this run; a warning names the others."""
    if is_checkpoint(path):
        return _load(path)
    damage: list[str] = []
    for _ in range(ATTEMPTS):
        listed = steps(path)
        damage.clear()
        for step in reversed(listed):
            try:
                checkpoint = _load(folder_of(path, step))
            except Damaged as error:
                damage.append(str(error))
                continue
            for problem in damage:
                warnings.warn(f"{problem}; going back to step {step}", stacklevel=2)
            return checkpoint
        if steps(path) == listed:
            break
    if damage:
        raise Damaged(f"{damage[0]}; no other checkpoint of this run can be read")
    raise no_run(path)


def no_run(path: Path) -> ValueError:
    """Return the error for a path that is not a run."""
    if path.is_dir():
        return ValueError(f"{path} is not a run of gomhc train: there is no checkpoint in {path / 'checkpoints'}")
    found = f"{path} is a file" if path.exists() else f"there is no folder {path}"
    return ValueError(f"{found}; give the folder of a run of gomhc train")


def is_checkpoint(path: Path) -> bool:
    """Return whether this folder is a checkpoint, rather than a run."""
    return (path / STATE).exists()


def set_aside_later(run: Path, step: int) -> None:
    """Rename the checkpoints of later steps, which a resumed run could not read, so that they are ignored."""
    for later in steps(run):
        if later > step:
            _moved(folder_of(run, later), _DAMAGED)


def remove_surplus(run: Path, keep: int) -> None:
    """Delete incomplete folders that a killed process left, and the oldest checkpoints beyond `keep`."""
    for prefix in (_PARTIAL, _OLD):
        for path in (run / "checkpoints").glob(f"{prefix}*"):
            remove(path)
    for step in steps(run)[:-keep]:
        remove(_moved(folder_of(run, step), _OLD))


def require_same_tensors(loaded: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise `Damaged` unless names, shapes and dtypes are the expected ones."""
    different = [name for name in {**expected, **loaded} if _form(loaded.get(name)) != _form(expected.get(name))]
    if different:
        name = different[0]
        got, wanted = _form(loaded.get(name)), _form(expected.get(name))
        raise Damaged(f"expected the tensors of the recipe's model; {name} must be {wanted}, got {got}")


def _form(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"


def _load(folder: Path) -> Checkpoint:
    try:
        content = read(folder / STATE)
        if _EARLIER in content[:100]:
            raise Damaged("it was written by an earlier version of gomhc, without checksums, and cannot be used")
        state = unseal(content)
        if state.get("format") != FORMAT:
            raise Damaged(f"expected the format {FORMAT!r}, got {state.get('format')!r}")
        if not isinstance(state["files"], dict) or set(state["files"]) != {WEIGHTS, OPTIMIZER}:
            raise Damaged(f"expected checksums of {WEIGHTS} and {OPTIMIZER}, got {state['files']!r}")
        for name, digest in state["files"].items():
            if sha256(folder / name) != digest:
                raise Damaged(f"{name} has changed")
        checkpoint = Checkpoint(
            step=_step(state["step"], folder),
            recipe=Recipe.from_dict(state["recipe"]),
            tokenizer=state["tokenizer"],
            data=str(state["data"]),
            history=(_count(state["history"]["bytes"]), str(state["history"]["sha256"])),
            weights=_tensors(folder / WEIGHTS),
            optimizer=_tensors(folder / OPTIMIZER),
        )
        _require_consistent(checkpoint)
        return checkpoint
    except (*MISSING, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise Damaged(f"the checkpoint {folder} cannot be read ({error})") from error
    except RuntimeError as error:
        if (folder / WEIGHTS).exists() and (folder / OPTIMIZER).exists():
            raise
        raise Damaged(f"the checkpoint {folder} is being deleted ({error})") from error


def _tensors(file: Path) -> dict[str, Tensor]:
    """Return copies of the tensors in a file: Windows cannot delete a file while memory is mapped to it."""
    return {name: tensor.clone() for name, tensor in load_file(file).items()}


def _step(step: Any, folder: Path) -> int:
    """Return the step in the state, which must be the one in the name of the folder, if there is one."""
    name = _NAME.fullmatch(folder.name)
    if name is not None and int(name[1]) != step:
        raise Damaged(f"expected step {int(name[1])}, as in the name of its folder, got {step!r}")
    return _count(step)


def _count(number: Any) -> int:
    require_whole("its count", number, 0)
    return number


def _require_consistent(checkpoint: Checkpoint) -> None:
    """Raise `Damaged` unless recipe, tokenizer and tensors fit together.

    This is checked before a model is built: a recipe can ask for any amount of memory, a file on disk cannot.
    """
    recipe, weights, tokenizer = checkpoint.recipe, checkpoint.weights, from_description(checkpoint.tokenizer)
    vocab_size = len(weights[EMBEDDING])
    ready = isinstance(tokenizer, BytePairTokenizer)  # its vocabulary is elsewhere, and may be a download
    if not ready and tokenizer.vocab_size != vocab_size:
        raise Damaged(f"the model has {vocab_size} tokens, but the tokenizer has {tokenizer.vocab_size}")
    expected_size = recipe.gpt_config(vocab_size).num_parameters
    size = sum(tensor.numel() for tensor in weights.values())
    if size != expected_size:
        raise Damaged(f"expected the {expected_size:,} weights of the recipe's model, got {size:,}")
    if checkpoint.step > recipe.steps:
        raise Damaged(f"step {checkpoint.step} is beyond the recipe's {recipe.steps} steps")
    expected = {
        f"{name}/{key}": torch.empty((), device="meta") if key == "step" else weight
        for name, weight in weights.items()
        for key in ("step", "exp_avg", "exp_avg_sq")
    }
    require_same_tensors(checkpoint.optimizer, expected)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(checkpoint.weights))
    (folder / OPTIMIZER).write_bytes(safetensors.torch.save(checkpoint.optimizer))
    state = {
        "format": FORMAT,
        "step": checkpoint.step,
        "recipe": asdict(checkpoint.recipe),
        "tokenizer": checkpoint.tokenizer,
        "data": checkpoint.data,
        "history": {"bytes": checkpoint.history[0], "sha256": checkpoint.history[1]},
        "versions": {"gomhc": __version__, "torch": torch.__version__},
        "files": {name: sha256(folder / name) for name in (WEIGHTS, OPTIMIZER)},
    }
    (folder / STATE).write_bytes(seal(state, indent=1).encode())  # as text, Windows would change the ends of lines
    for name in (WEIGHTS, OPTIMIZER, STATE):
        flush(folder / name)
    flush(folder)


def _moved(folder: Path, prefix: str) -> Path:
    """Rename a folder, so that it does not look like a checkpoint while it is being deleted."""
    moved = folder.with_name(f"{prefix}{folder.name}")
    remove(moved)
    folder.rename(moved)
    return moved
