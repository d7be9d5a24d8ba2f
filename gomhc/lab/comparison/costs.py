"""What a training step of each method costs: median of interleaved steps on one thread, and peak memory.

The time of the runs themselves says little, as they share the machine with each other. Costs are kept in a file, so
that a comparison that is started again goes by the same ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gomhc.lab.bench.timing import Contender, Turn, num_turns, timings, turns
from gomhc.lab.files import Damaged, read_sealed, seal, write_atomically
from gomhc.lab.training.loop import BETAS
from gomhc.lab.training.recipe import Recipe
from gomhc.layers import parameter_groups
from gomhc.models import GPT

ROUNDS = 7
"""How often each method is timed."""


@dataclass(frozen=True)
class Cost:
    """Cost of one training step, and the size of the model."""

    milliseconds: float
    """Median over rounds."""
    spread: float
    """Interquartile range in milliseconds."""
    megabytes: float
    """Peak memory beyond weights and optimizer state."""
    num_parameters: int


def load(file: Path, recipes: Mapping[str, Recipe], vocab_size: int) -> dict[str, Cost] | None:
    """Return the costs in the file, or None unless it has those of all these methods."""
    try:
        kept = read_sealed(file)
        return {method: Cost(**kept[_key(recipe, vocab_size)]) for method, recipe in recipes.items()}
    except (FileNotFoundError, KeyError, TypeError, Damaged):
        return None


def save(file: Path, costs: Mapping[str, Cost], recipes: Mapping[str, Recipe], vocab_size: int) -> None:
    """Write the costs to the file."""
    kept = {_key(recipes[method], vocab_size): vars(cost) for method, cost in costs.items()}
    write_atomically(file, seal(kept, indent=1))


def measure(
    recipes: Mapping[str, Recipe], vocab_size: int, watch: Callable[[Iterator[Turn], int], Iterator[Turn]]
) -> dict[str, Cost]:
    """Time steps of all methods in turns; `watch` shows the progress of that many turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        contenders = [Contender(method, {}, _step(recipe, vocab_size)) for method, recipe in recipes.items()]
        taken = list(watch(turns(contenders, ROUNDS), num_turns(contenders, ROUNDS)))
    finally:
        torch.set_num_threads(before)
    return {
        timing.method: Cost(
            timing.milliseconds,
            timing.spread,
            timing.megabytes,
            recipes[timing.method].gpt_config(vocab_size).num_parameters,
        )
        for timing in timings(taken, ())
    }


def seconds(recipe: Recipe, cost: Cost) -> float:
    """Return the time of a run on one thread: its steps and its evaluations, whose tokens cost a third."""
    evaluations = recipe.steps // recipe.evaluate_every + 1
    evaluated = recipe.evaluation_windows * recipe.context_length / recipe.tokens_per_step / 3
    return 1e-3 * cost.milliseconds * (recipe.steps + evaluations * evaluated)


def _step(recipe: Recipe, vocab_size: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    model = GPT(recipe.gpt_config(vocab_size), generator)
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=1e-4, betas=BETAS)
    shape = (2, recipe.batch_size, recipe.context_length)
    tokens, targets = torch.randint(vocab_size, shape, generator=generator)

    def run() -> None:
        for _ in range(recipe.accumulation):
            _, loss = model(tokens, targets)
            (loss / recipe.accumulation).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad()

    return run


def _key(recipe: Recipe, vocab_size: int) -> str:
    """Return a hash of what the cost depends on."""
    size: list[Any] = [repr(recipe.gpt_config(vocab_size)), recipe.batch_size, recipe.accumulation]
    return hashlib.sha256(json.dumps(size).encode()).hexdigest()[:16]
