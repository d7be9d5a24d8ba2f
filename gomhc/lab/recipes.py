"""Named complete runs. The help of `gomhc train` is made of them: a name, and what its docstring says."""

from __future__ import annotations

from collections.abc import Callable

from gomhc.lab.training.recipe import Recipe


def stories_tiny() -> Recipe:
    """A small model on generated stories, character by character; two to three minutes on two cores."""
    return Recipe(
        steps=800,
        learning_rate=2e-3,
        coefficient_learning_rate=2e-4,
        warmup_steps=50,
        evaluate_every=200,
        save_every=200,
        sample_tokens=400,
    )


def shakespeare_char() -> Recipe:
    """Tiny Shakespeare, character by character, with the sizes of nanoGPT's example; downloads the text."""
    return Recipe(
        corpus="shakespeare",
        num_layers=6,
        num_heads=6,
        num_channels=384,
        context_length=256,
        dropout=0.2,
        steps=5000,
        batch_size=64,
        warmup_steps=100,
        evaluate_every=250,
        evaluation_windows=256,
        sample_tokens=500,
        save_every=250,
    )


def tinystories_30m() -> Recipe:
    """The paper's language model and hyperparameters (app. G.1); downloads the text; a day or more without a GPU."""
    return Recipe(
        corpus="tinystories",
        tokenizer="gpt2",
        num_layers=6,
        num_heads=6,
        num_channels=384,
        context_length=512,
        dropout=0.1,
        steps=20_000,
        batch_size=32,
        accumulation=4,
        coefficient_learning_rate=None,
        warmup_steps=500,
        precision="bfloat16",
        evaluate_every=500,
        evaluation_windows=256,
        sample_tokens=150,
        save_every=500,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__.replace("_", "-"): recipe for recipe in (stories_tiny, shakespeare_char, tinystories_30m)
}
DEFAULT = "stories-tiny"
