"""What is trained, on what, and how? A value that says it all: the same recipe gives the same run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.registry import NO_MIXING
from gomhc.checks import require_choice, require_number, require_text, require_whole
from gomhc.layers import Start
from gomhc.models import GPTConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A complete run."""

    mixing: str = "go"
    """What mixes the streams: none (one plain residual stream), identity, go, go-unitary, sinkhorn, sinkhorn-linear,
    sinkhorn-v4, permutations, kronecker, average, transportation, unconstrained or a name of the literature (mhc-lite);
    options follow a colon, as in go:expressivity=1."""
    num_streams: int = 4
    """Residual streams (d)."""
    start: Start = "mean-stream"
    """Initial values of the coefficients of the streams."""

    corpus: str = "stories"
    """What is learned: stories (made here), shakespeare, tinystories (downloads), or a text file with <|endoftext|>
    behind each document."""
    tokenizer: str = "character"
    """How text is cut: character, gpt2 (a download), or a folder with GPT-2's vocab.json."""

    num_layers: int = 4
    """Blocks of one attention and one feed-forward network each."""
    num_heads: int = 4
    """Attention heads."""
    num_channels: int = 128
    """Width of a token."""
    context_length: int = 128
    """The most tokens that attention sees."""
    dropout: float = 0.0
    """Share of activations that are dropped in training."""

    steps: int = 600
    """Updates of the weights."""
    batch_size: int = 16
    """Sequences of a batch, over all processes."""
    accumulation: int = 1
    """Batches whose gradients are averaged before an update."""
    learning_rate: float = 1e-3
    """At its peak, after the warm-up."""
    final_learning_rate: float = 1e-4
    """At the end of its cosine."""
    warmup_steps: int = 20
    """Steps in which the learning rate rises to its peak."""
    weight_decay: float = 0.1
    """Of matrices; biases, norms and static coefficients do not decay."""
    clip: float = 1.0
    """The largest norm of the gradient; larger ones are scaled down to it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the branches; weights and coefficients are float32 in any case."""

    evaluate_every: int = 100
    """Steps between two looks at the validation text and a sample."""
    evaluation_windows: int = 64
    """Windows of the validation text that are looked at."""
    sample_tokens: int = 200
    """Length of a sample."""
    save_every: int = 100
    """Steps between two checkpoints."""
    keep: int = 2
    """How many checkpoints are kept."""
    seed: int = 0
    """Of weights, batches and dropout."""

    def __post_init__(self) -> None:
        for name in ("mixing", "corpus", "tokenizer"):
            require_text(name, getattr(self, name))
        for name in (
            "steps",
            "batch_size",
            "accumulation",
            "evaluate_every",
            "evaluation_windows",
            "save_every",
            "keep",
        ):
            require_whole(name, getattr(self, name), 1)
        for name in ("warmup_steps", "sample_tokens", "seed"):
            require_whole(name, getattr(self, name), 0)
        for name in ("learning_rate", "final_learning_rate", "weight_decay"):
            require_number(name, getattr(self, name), least=0)
        require_number("clip", self.clip, above=0)  # a large number clips nothing
        require_choice("precision", self.precision, ("float32", "bfloat16"))
        _ = self.gpt_config(vocab_size=1)  # which checks the rest

    @property
    def parametrization(self) -> Parametrization | None:
        """What mixes the streams."""
        return None if self.mixing == NO_MIXING else as_mixing(self.mixing, self.num_streams)

    @property
    def tokens_per_step(self) -> int:
        """How many tokens an update learns from."""
        return self.batch_size * self.accumulation * self.context_length

    def gpt_config(self, vocab_size: int) -> GPTConfig:
        """Of its model."""
        return GPTConfig(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_channels=self.num_channels,
            context_length=self.context_length,
            vocab_size=vocab_size,
            dropout=self.dropout,
            mixing=self.parametrization,
            start=self.start,
        )

    def learning_rate_at(self, step: int) -> float:
        """A straight line up to the peak, then half a cosine down."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / (self.warmup_steps + 1)
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        height = 0.5 * (1 + math.cos(math.pi * share))
        return self.final_learning_rate + height * (self.learning_rate - self.final_learning_rate)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """What `dataclasses.asdict` gave; fields of another version are an error."""
        if not isinstance(values, dict):
            raise ValueError(f"a recipe is a table of values, got {values!r}")
        if unknown := set(values) - {field.name for field in fields(cls)}:
            raise ValueError(f"the recipe has fields that this version does not know: {', '.join(sorted(unknown))}")
        return cls(**values)
