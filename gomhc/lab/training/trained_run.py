"""Loading of a run that `gomhc train` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gomhc.lab.data.tokenizers import Tokenizer, from_description
from gomhc.lab.training import checkpoint
from gomhc.lab.training.recipe import Recipe
from gomhc.models import GPT


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with its tokenizer and recipe; the model is on the CPU, in evaluation mode."""

    model: GPT
    tokenizer: Tokenizer
    recipe: Recipe
    step: int
    """Number of updates that were made."""


def load_run(directory: Path | str) -> TrainedRun:
    """Load the newest checkpoint of a run, or the checkpoint in this folder."""
    newest = checkpoint.load(Path(directory))
    tokenizer = from_description(newest.tokenizer)
    model = GPT(newest.recipe.gpt_config(tokenizer.vocab_size))
    checkpoint.require_same_tensors(newest.weights, model.state_dict())
    model.load_state_dict(newest.weights)
    return TrainedRun(model.eval(), tokenizer, newest.recipe, newest.step)
