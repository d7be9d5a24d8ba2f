"""Cost of a training step of each method: median time of interleaved steps (one thread on a CPU) and peak memory.

The time of the runs themselves says little, as they share the machine with each other. Costs are kept in a file, so
that a comparison that is started again goes by the same ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gomhc.lab.bench.timing import Contender, Turn, num_turns, timings, turns
from gomhc.lab.files import Damaged, read_sealed, seal, write_atomically
from gomhc.lab.training.loop import BETAS
from gomhc.lab.training.recipe import EARLIER, Recipe
from gomhc.layers import parameter_groups
from gomhc.models import GPT

SIZES = (
    "mixing",
    "num_streams",
    "dynamic",
    "readout",
    "num_layers",
    "num_heads",
    "num_channels",
    "context_length",
    "dropout",
    "batch_size",
    "accumulation",
    "precision",
)
"""Fields of a recipe on which the cost of a step depends."""
EARLIER_SIZES = {
    **{name: value for name, value in EARLIER.items() if name in SIZES},
    "device": "cpu",
    "compile": False,
}
"""Values for files written before these fields existed."""
ROUNDS = 7
"""How often each method is timed."""


@dataclass(frozen=True)
class StepCost:
    """Cost of one training step, and the size of the model."""

    milliseconds: float
    """Median over rounds."""
    spread: float
    """Interquartile range in milliseconds."""
    megabytes: float
    """Peak memory beyond weights and optimizer state."""
    num_parameters: int


@dataclass(frozen=True)
class StepSetting:
    """What the cost of a step depends on, apart from the recipe."""

    vocab_size: int
    device: str
    compile: bool


def load(file: Path, recipes: Mapping[str, Recipe], setting: StepSetting) -> dict[str, StepCost] | None:
    """Return the costs in the file, or None unless it has those of all these methods."""
    try:
        kept = [
            ({**EARLIER_SIZES, **entry["model"]}, StepCost(**entry["cost"])) for entry in read_sealed(file)["costs"]
        ]
    except (FileNotFoundError, KeyError, TypeError, Damaged):
        return None
    found = {
        method: [cost for model, cost in kept if model == _model(recipe, setting)] for method, recipe in recipes.items()
    }
    return {method: costs[0] for method, costs in found.items()} if all(found.values()) else None


def save(file: Path, costs: Mapping[str, StepCost], recipes: Mapping[str, Recipe], setting: StepSetting) -> None:
    """Write the costs to the file."""
    entries = [{"model": _model(recipes[method], setting), "cost": vars(cost)} for method, cost in costs.items()]
    write_atomically(file, seal({"costs": entries}, indent=1))


def measure(
    recipes: Mapping[str, Recipe],
    setting: StepSetting,
    watch: Callable[[Iterator[Turn], int], Iterator[Turn]],
) -> dict[str, StepCost]:
    """Time steps of all methods in turns; `watch` shows the progress of that many turns.

    Methods whose models have the same shape, such as two starts of one mixing, are timed once.
    """
    models = {method: repr(_model(recipe, setting)) for method, recipe in recipes.items()}
    timed_method = {model: method for method, model in reversed(models.items())}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        contenders = [
            Contender(method, {}, _step(recipe, setting))
            for method, recipe in recipes.items()
            if timed_method[models[method]] == method
        ]
        with _compilable(len(contenders)) if setting.compile else nullcontext():
            taken = list(watch(turns(contenders, ROUNDS), num_turns(contenders, ROUNDS)))
    finally:
        torch.set_num_threads(before)
    timing_of = {timing.method: timing for timing in timings(taken, ())}

    def cost(method: str) -> StepCost:
        timing = timing_of[timed_method[models[method]]]
        num_parameters = recipes[method].gpt_config(setting.vocab_size).num_parameters
        return StepCost(timing.milliseconds, timing.spread, timing.megabytes, num_parameters)

    return {method: cost(method) for method in recipes}


@contextmanager
def _compilable(num_models: int) -> Iterator[None]:
    """Inside, torch.compile compiles that many models of one class; by default, all after the eighth run uncompiled."""
    import torch._dynamo

    with torch._dynamo.config.patch(recompile_limit=max(num_models, torch._dynamo.config.recompile_limit)):
        yield


def seconds(recipe: Recipe, cost: StepCost, held_out_tokens: int) -> float:
    """Return the time of a run: its steps and its evaluations, whose tokens cost a third."""
    evaluations = recipe.steps // recipe.evaluate_every + 1
    tokens = min(recipe.evaluation_windows * recipe.context_length, held_out_tokens)
    evaluated = tokens / recipe.tokens_per_step / 3
    return 1e-3 * cost.milliseconds * (recipe.steps + evaluations * evaluated)


def time_at_once(times: Sequence[float], jobs: int) -> float:
    """Return how long runs take that many at a time, each begun when a place is free."""
    ends = [0.0] * jobs
    for one in times:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _step(recipe: Recipe, setting: StepSetting) -> Callable[[], object]:
    vocab_size, device = setting.vocab_size, setting.device
    generator = torch.Generator().manual_seed(0)
    model = GPT(recipe.gpt_config(vocab_size), generator).to(device)
    forward = torch.compile(model) if setting.compile else model
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=1e-4, betas=BETAS)
    shape = (2, recipe.batch_size, recipe.context_length)
    tokens, targets = torch.randint(vocab_size, shape, generator=generator).to(device)

    def run() -> None:
        for _ in range(recipe.accumulation):
            with torch.autocast(device, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
                _, loss = forward(tokens, targets)
            (loss / recipe.accumulation).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def _model(recipe: Recipe, setting: StepSetting) -> dict[str, Any]:
    """Return what the cost depends on."""
    return {**{name: getattr(recipe, name) for name in SIZES}, **asdict(setting)}
