"""A recipe of seconds, for tests that train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gomhc.lab.data.story_grammar import stories
from gomhc.lab.training import Recipe


def small_recipe(corpus: Path, **changes: Any) -> Recipe:
    """Six steps of a tiny model on forty stories, which are written to `corpus`."""
    corpus.write_text("<|endoftext|>".join(stories(40)))
    values: dict[str, Any] = {
        "num_streams": 2,
        "num_layers": 1,
        "num_heads": 1,
        "num_channels": 8,
        "context_length": 8,
        "steps": 6,
        "batch_size": 2,
        "warmup_steps": 1,
        "evaluate_every": 3,
        "evaluation_windows": 2,
        "sample_tokens": 3,
        "save_every": 2,
        "keep": 3,
    }
    return Recipe(corpus=str(corpus), **{**values, **changes})
