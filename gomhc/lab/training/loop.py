"""The training loop: batch, forward, backward, clip, step, log, evaluate, save.

A run is determined by its recipe and the number of processes. Batches and dropout of a step depend only on the seed and
the step, so that no random state has to be saved and a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gomhc.inspection import inspect
from gomhc.lab.data import corpora
from gomhc.lab.data.tokens import Batch, Dataset, batch, evaluation_windows, prepare, require_windows
from gomhc.lab.lock import lock
from gomhc.lab.training import checkpoint, distributed, health
from gomhc.lab.training.checkpoint import Checkpoint
from gomhc.lab.training.distributed import Parallel, World
from gomhc.lab.training.history import History, Metrics, require_no_links
from gomhc.lab.training.recipe import Recipe
from gomhc.lab.training.sampling import stream_text
from gomhc.lab.training.signals import stop_on_signals
from gomhc.layers import parameter_groups
from gomhc.models import GPT, GPTConfig
from gomhc.statistics.curves import gradient_jitter

LOCK = ".lock"
"""Lock file in the folder of a run."""
BETAS = (0.9, 0.95)
"""Betas of AdamW, as in nanoGPT."""
JITTER_WINDOW = 10
"""Number of steps over which the paper measures jitter (app. G.2)."""


class Watcher:
    """Base class of observers of a run; its methods do nothing."""

    def opened(self, run: Path) -> None:
        """Called when the folder of the run is ready."""

    def started(self, recipe: Recipe, model: GPT, step: int) -> None:
        """Called before the first step."""

    def stepped(self, record: Metrics) -> None:
        """Called after each step: step, loss, gradient_norm, jitter, learning_rate, seconds."""

    def evaluated(self, record: Metrics) -> None:
        """Called after each evaluation: step, validation_loss, mix_distance, sample, and `Inspection.summary`."""

    def saved(self, folder: Path) -> None:
        """Called after each checkpoint."""

    def stopping(self) -> None:
        """Called in the handler of a signal that asks this run alone to stop; it saves a checkpoint after this step."""

    def wants_stop(self) -> bool:
        """Called after each step; return True to save a checkpoint and stop."""
        return False


class NotFinite(ArithmeticError):
    """The loss or its gradient is infinite or nan."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is computed; not part of the recipe."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on: auto (CUDA if available), cpu or cuda."""
    compile: bool = False
    """Compile the model with torch.compile."""
    parallel: Parallel = "ddp"
    """With torchrun, each process holds the whole model (ddp) or a shard of it (fsdp)."""


def train(
    recipe: Recipe, run: Path | None = None, execution: Execution | None = None, watcher: Watcher | None = None
) -> int:
    """Train from the start, and return the number of steps done, which is smaller if a signal stopped the run.

    `run` is a folder without a run; by default a new one: runs/go-1, runs/go-2 and so on.
    """
    execution, watcher = execution or Execution(), watcher or Watcher()
    with distributed.world(execution.device) as world, ExitStack() as stack:
        folder = Path(world.from_main(lambda: str(stack.enter_context(_new_folder(run, recipe)))))
        return _train(recipe, folder, None, execution, world, watcher)


def resume(
    run: Path, execution: Execution | None = None, watcher: Watcher | None = None, *, corpus: str | None = None
) -> int:
    """Continue a run from its newest readable checkpoint, and return the number of steps done.

    `corpus` is where the text is now, if it was moved.
    """
    execution, watcher = execution or Execution(), watcher or Watcher()
    if checkpoint.is_checkpoint(run):
        raise ValueError(f"{run} is a checkpoint; expected the folder of a run, such as {run.parent.parent}")
    if not checkpoint.steps(run):
        raise checkpoint.no_run(run)
    with distributed.world(execution.device) as world, ExitStack() as stack:
        newest: list[Checkpoint] = []  # filled in the main process
        step = world.from_main(lambda: str(stack.enter_context(_continued(run, newest))))
        last = newest[0] if newest else checkpoint.load(checkpoint.folder_of(run, int(step)))
        recipe = last.recipe if corpus is None else replace(last.recipe, corpus=corpus)
        return _train(recipe, run, last, execution, world, watcher)


def _train(
    recipe: Recipe, run: Path, last: Checkpoint | None, execution: Execution, world: World, watcher: Watcher
) -> int:
    watcher = watcher if world.is_main else Watcher()
    watcher.opened(run)
    trainer = Trainer(recipe, run, last, execution, world, watcher)
    try:
        with stop_on_signals(watcher.stopping) as stop:
            return trainer.run_until(lambda: stop.wanted or watcher.wants_stop())
    finally:
        trainer.close()


@contextmanager
def _new_folder(run: Path | None, recipe: Recipe) -> Iterator[Path]:
    """Create and lock the folder of a new run; it is deleted again if it stays empty."""
    name = f"runs/{recipe.mixing.partition(':')[0]}"
    made: list[Path] = []
    folder = run or next(folder for number in count(1) if _make(folder := Path(f"{name}-{number}"), made))
    _make(folder, made)
    try:
        with lock(folder / LOCK, str(folder)):
            require_no_links(folder)
            if checkpoint.steps(folder):
                raise ValueError(
                    f"{folder} already has a run; continue it with --resume {folder}, or choose another folder"
                )
            yield folder
    finally:
        _remove_empty(made)


@contextmanager
def _continued(run: Path, newest: list[Checkpoint]) -> Iterator[int]:
    """Lock a run, append its newest checkpoint to `newest`, and yield the step of it."""
    with lock(run / LOCK, str(run)):
        require_no_links(run)
        newest.append(checkpoint.load(run))
        checkpoint.set_aside_later(run, newest[0].step)
        checkpoint.remove_surplus(run, newest[0].recipe.keep)
        yield newest[0].step


def _make(folder: Path, made: list[Path]) -> bool:
    """Create a folder with its parents, and add them to `made`; return False if it exists."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    made.extend(missing)
    return True


def _remove_empty(folders: list[Path]) -> None:
    """Delete those of these folders that are empty, innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


class Trainer:
    """The part of a run in one process."""

    def __init__(
        self, recipe: Recipe, run: Path, last: Checkpoint | None, execution: Execution, world: World, watcher: Watcher
    ) -> None:
        self.recipe, self.folder, self.world, self.watcher = recipe, run, world, watcher
        self.data = _dataset(recipe, world, last)
        config = recipe.gpt_config(self.data.tokenizer.vocab_size)
        require_memory(recipe, config, world)
        generator = torch.Generator().manual_seed(recipe.seed)
        self.gpt = GPT(config, generator).to(world.device)
        self.model = distributed.distribute(self.gpt, self.gpt.blocks, world, execution.parallel)
        self.forward: Any = torch.compile(self.model) if execution.compile else self.model
        groups = parameter_groups(self.gpt, recipe.weight_decay, recipe.coefficient_learning_rate)
        self.rate_ratios = [recipe.coefficient_rate_ratio if "lr" in group else 1.0 for group in groups]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=BETAS)
        self.step = 0
        if last is not None:
            checkpoint.require_same_tensors(last.weights, self.gpt.state_dict())
            distributed.scatter(self.model, self.optimizer, last.weights, last.optimizer)
            self.step = last.step
        self.history = History(run, self.step, last.history if last else None) if world.is_main else None
        self.norms = self.history.gradient_norms[-JITTER_WINDOW:] if self.history is not None else []
        if last is None:
            self.save()  # so that the run can be resumed from the start

    def run_until(self, stop_wanted: Any) -> int:
        """Train until all steps are done or a process is asked to stop; return the number of steps done."""
        self.watcher.started(self.recipe, self.gpt, self.step)
        while self.step < self.recipe.steps:
            if self.step % self.recipe.evaluate_every == 0:
                self.evaluate()
            self.update()
            stopping = any(self.world.sum(float(stop_wanted())))
            if stopping or self.step % self.recipe.save_every == 0 or self.step == self.recipe.steps:
                self.save()
            if stopping and self.step < self.recipe.steps:  # behind the last step there is the evaluation alone
                return self.step
        self.evaluate()
        return self.step

    def update(self) -> None:
        """Make one step."""
        begin = time.perf_counter()
        rate = self.recipe.learning_rate_at(self.step)
        for group, ratio in zip(self.optimizer.param_groups, self.rate_ratios, strict=True):
            group["lr"] = ratio * rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.backward()
        norm = self.gradient_norm()
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NotFinite(self.diagnosis(f"the loss is {loss} and its gradient's norm {norm}"))
        nn.utils.clip_grads_with_norm_(self.model.parameters(), self.recipe.clip, torch.tensor(norm))
        self.optimizer.step()
        seconds = time.perf_counter() - begin
        self.norms = [*self.norms, norm][-JITTER_WINDOW:]
        jitter = gradient_jitter(self.norms)[-1].item() if len(self.norms) == JITTER_WINDOW else None
        record = {
            "step": self.step,
            "loss": loss,
            "gradient_norm": norm,
            "jitter": jitter,
            "learning_rate": rate,
            "seconds": seconds,
        }
        self.step += 1
        self.log(record)
        self.watcher.stepped(record)

    def backward(self) -> float:
        """Compute gradients, and return the mean loss over the step's batches and all processes."""
        self.gpt.train()
        total, count = 0.0, self.recipe.accumulation
        for part, (tokens, targets) in enumerate(self.batches()):
            self.seed_dropout(part)
            with distributed.no_sync(self.model, last=part == count - 1):
                with self.autocast():
                    _, loss = self.forward(tokens, targets)
                (loss / count).backward()
            total += loss.item() / count
        return self.world.sum(total / self.world.size)[0]

    def batches(self) -> list[Batch]:
        """Return this process's part of the batches of the step."""
        recipe = self.recipe
        size = recipe.batch_size * recipe.accumulation
        drawn = batch(self.data.train, recipe.context_length, size, seed=recipe.seed, step=self.step)
        parts = zip(*(side.chunk(recipe.accumulation) for side in drawn), strict=True)
        return [(self._mine(tokens), self._mine(targets)) for tokens, targets in parts]

    def gradient_norm(self) -> float:
        """Return the norm of the gradient over all parameters, before clipping."""
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()

    @torch.no_grad()
    def evaluate(self) -> None:
        """Log the validation loss, measures of the streams on the first validation window, and a sample."""
        self.gpt.eval()
        tokens, targets = evaluation_windows(
            self.data.validation, self.recipe.context_length, self.recipe.evaluation_windows
        )
        parts = zip(*(side.split(self.recipe.batch_size) for side in (tokens, targets)), strict=True)
        with self.autocast():  # every process evaluates everything: the loss does not depend on their number
            loss = sum(len(part[0]) * self._loss(*part) for part in parts) / len(tokens)
        if not math.isfinite(loss):
            raise NotFinite(self.diagnosis(f"the validation loss is {loss}"))
        record = {
            "step": self.step,
            "validation_loss": loss,
            **self.streams(tokens[:1]),
            "sample": self.sample(),
        }
        self.log(record)
        self.watcher.evaluated(record)

    def streams(self, tokens: Tensor) -> Metrics:
        """Return `Inspection.summary`, and the distance of each mix from the identity."""
        if self.gpt.config.mixing is None or tokens.shape[-1] < 2:  # the loss needs a next token
            return {"mix_distance": {}}
        inspection = inspect(self.gpt, tokens.to(self.world.device))
        distances = zip(inspection.names, inspection.distance_to_identity.tolist(), strict=True)
        return {"mix_distance": dict(distances), **inspection.summary()}

    def sample(self) -> str:
        """Return a sampled document."""
        with distributed.whole(self.model):
            pieces = stream_text(self.gpt, self.data.tokenizer, "", num_tokens=self.recipe.sample_tokens)
            return "".join(pieces)

    def save(self) -> None:
        """Write a checkpoint."""
        if self.history is not None:
            self.history.flush()
        weights, state = distributed.gather(self.model, self.optimizer)
        if self.history is not None:
            tokenizer, data, history = self.data.tokenizer.describe(), self.data.fingerprint, self.history.written
            state_of_run = Checkpoint(self.step, self.recipe, tokenizer, data, history, weights, state)
            self.watcher.saved(checkpoint.save(self.folder, state_of_run))
        self.world.wait()

    def diagnosis(self, what: str) -> str:
        """Return a message with the step and the layer of the first number that is not finite, and a way out."""
        tokens, targets = self.batches()[0]
        self.seed_dropout(0)
        where = health.first_not_finite(self.gpt, lambda: self.gpt(tokens, targets))
        if where is None and (weight := health.first_gradient_not_finite(self.gpt)) is not None:
            where = f"the gradient of {weight}"
        where = self.world.first(where) or "no single layer"
        last = checkpoint.folder_of(self.folder, checkpoint.steps(self.folder)[-1])
        return (
            f"at step {self.step} {what}; the first that is not finite is {where}. The last good checkpoint is {last}; "
            f"try a lower learning rate, or precision float32"
        )

    def log(self, record: Metrics) -> None:
        """Append a record to the history."""
        if self.history is not None:
            self.history.append(record)

    def close(self) -> None:
        """Close the history."""
        if self.history is not None:
            self.history.close()

    def seed_dropout(self, part: int) -> None:
        """Seed dropout by the step, the batch of the step and the process."""
        key = np.random.SeedSequence([self.recipe.seed, self.step, part, self.world.rank])
        torch.manual_seed(int(key.generate_state(1, np.uint64)[0]))

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the recipe's precision."""
        enabled = self.recipe.precision == "bfloat16"
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=enabled)

    def _mine(self, tokens: Tensor) -> Tensor:
        return self.world.share(tokens).to(self.world.device)

    def _loss(self, tokens: Tensor, targets: Tensor) -> float:
        device = self.world.device
        return self.gpt(tokens.to(device), targets.to(device))[1].item()


def require_memory(recipe: Recipe, config: GPTConfig, world: World) -> None:
    """Raise a ValueError if the run cannot fit into memory, by a lower bound of what it needs.

    Weights, gradients and AdamW's two moments are four numbers per parameter; a batch has one logit per token and word
    of the vocabulary.
    """
    tokens = -(-recipe.batch_size // world.size) * recipe.context_length
    needed = 4 * (4 * config.num_parameters // world.size + tokens * (config.vocab_size + config.num_channels))
    if needed > world.memory:
        raise ValueError(
            f"a model of {config.num_parameters:,} parameters on batches of {recipe.batch_size} sequences needs more "
            f"than {needed / 2**30:,.1f} GiB, but the device has {world.memory / 2**30:,.1f}; choose a smaller "
            f"num_channels, num_layers, batch_size or context_length, or a mixing with fewer logits"
        )


def _dataset(recipe: Recipe, world: World, last: Checkpoint | None) -> Dataset:
    if recipe.batch_size % world.size != 0:
        raise ValueError(
            f"batch_size must be a multiple of the number of processes, {world.size}, got {recipe.batch_size}; "
            f"choose another batch size or number of processes"
        )
    made: list[Dataset] = []  # filled in the main process, which downloads and tokenizes; the others read the cache

    def make() -> str:
        made.append(prepare(corpora.find(recipe.corpus), recipe.tokenizer))
        return made[0].fingerprint

    world.from_main(make)
    data = made[0] if made else prepare(corpora.find(recipe.corpus), recipe.tokenizer)
    require_windows(data, recipe.context_length)
    if last is not None and data.fingerprint != last.data:
        raise ValueError(
            f"the corpus {recipe.corpus} has changed since this run started; restore the original text, or start a new "
            f"run"
        )
    return data
