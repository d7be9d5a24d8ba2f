"""A run that `gomhc train` wrote, ready to be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gomhc.data.tokenizers import Tokenizer, from_description
from gomhc.models import GPT
from gomhc.training import checkpoint
from gomhc.training.recipe import Recipe


@dataclass(frozen=True)
class Run:
    """Model, tokenizer and recipe; the model is on the CPU, in evaluation mode."""

    model: GPT
    tokenizer: Tokenizer
    recipe: Recipe
    step: int


def load_run(directory: Path | str) -> Run:
    """The newest checkpoint of a run, or the one in this folder."""
    found = checkpoint.load(Path(directory))
    tokenizer = from_description(found.tokenizer)
    model = GPT(found.recipe.gpt_config(tokenizer.vocab_size))
    model.load_state_dict(found.weights)
    return Run(model.eval(), tokenizer, found.recipe, found.step)
