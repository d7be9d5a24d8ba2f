"""The recipe of a run: model, corpus and optimization. The same recipe gives the same run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.registry import NO_MIXING
from gomhc.checks import require_choice, require_number, require_text, require_whole
from gomhc.layers import DEFAULT_START, INITIAL_SCALE, Start
from gomhc.models import GPTConfig

AS_WIDE = f"{NO_MIXING}:as-wide="
"""Start of the mixing of a plain network that is as large as one with streams."""
EARLIER: dict[str, Any] = {
    "total_leak": None,
    "initial_scale": 0.01,
    "dynamic": True,
    "readout": "mean",
    "coefficient_learning_rate": None,
}
"""Values of fields that recipes did not have at first; they stay, even if the defaults change."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Model, text and optimization of a run."""

    # The help of the command line keeps the ends of these lines, so long lines go on behind a backslash.
    mixing: str = "go"
    """Mixing of the streams, with options after a colon, as in go:expressivity=1.
    One of identity, go, go-unitary, sinkhorn, sinkhorn-linear, sinkhorn-v4, permutations, kronecker, average, \
transportation, projection, circulant, spectral-sphere, orthogonal, rows, off-diagonal, unconstrained, a name from the \
literature such as mhc-lite, or one that you registered.
    none is the plain network with one stream, and none:as-wide=go a wider one with as many parameters as go."""
    num_streams: int = 4
    """Number of residual streams (d)."""
    start: Start = DEFAULT_START
    """Initial values of the coefficients (read, write and mix)."""
    total_leak: float | None = None
    """Share of a stream that goes to other streams at first, over all mixes; by default, initial_leak for each mix."""
    initial_scale: float = INITIAL_SCALE
    """First value of the scales of the coefficients: how fast the streams begin to steer them."""
    dynamic: bool = True
    """Compute coefficients for each token; otherwise, all tokens share the same ones."""
    readout: Literal["mean", "sum", "learned"] = "mean"
    """How the streams are reduced to one before the last norm."""

    corpus: str = "stories"
    """stories (generated), shakespeare or tinystories (downloads), or a text file; <|endoftext|> ends each document."""
    tokenizer: str = "character"
    """character, bpe:2048 (trained on the corpus, 2,048 tokens), gpt2 (a download), or a folder with vocab.json."""

    num_layers: int = 4
    """Number of blocks, each with attention and a feed-forward network."""
    num_heads: int = 4
    """Number of attention heads."""
    num_channels: int = 128
    """Number of channels of a stream."""
    context_length: int = 128
    """Maximum number of tokens that attention sees."""
    dropout: float = 0.0
    """Dropout probability in training."""

    steps: int = 600
    """Number of weight updates."""
    batch_size: int = 16
    """Number of sequences in a batch, over all processes."""
    accumulation: int = 1
    """Number of batches whose gradients are averaged for each update."""
    learning_rate: float = 1e-3
    """Peak learning rate, after the warm-up."""
    final_learning_rate: float = 1e-4
    """Learning rate at the end of the cosine schedule."""
    coefficient_learning_rate: float | None = 1e-4
    """Peak learning rate of the coefficients (read, write and mix); None for the rate of all other weights.
    It does not follow --learning-rate: if you change that, set this to about a tenth of it."""
    warmup_steps: int = 20
    """Number of steps over which the learning rate rises to its peak."""
    weight_decay: float = 0.1
    """Weight decay of weight matrices; biases, norms and scales do not decay."""
    clip: float = 1.0
    """Maximum norm of the gradient; larger gradients are scaled down to it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the branches; weights and coefficients are always float32."""

    evaluate_every: int = 100
    """Number of steps between evaluations."""
    evaluation_windows: int = 64
    """Maximum number of validation windows in an evaluation."""
    sample_tokens: int = 200
    """Number of tokens to sample at each evaluation."""
    save_every: int = 100
    """Number of steps between checkpoints."""
    keep: int = 2
    """Number of checkpoints to keep."""
    seed: int = 0
    """Random seed of weights, batches and dropout."""

    def __post_init__(self) -> None:
        for name in ("mixing", "corpus", "tokenizer"):
            require_text(name, getattr(self, name))
        for name in (
            "num_streams",
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
        if self.coefficient_learning_rate is not None:
            require_number("coefficient_learning_rate", self.coefficient_learning_rate, least=0)
            require_number("learning_rate", self.learning_rate, above=0)  # the schedule is scaled by their ratio
        if not isinstance(self.dynamic, bool):
            raise ValueError(f"dynamic must be True or False, got {self.dynamic!r}")
        require_choice("precision", self.precision, ("float32", "bfloat16"))
        if self.mixing.startswith(f"{NO_MIXING}:") and not self.as_wide_as:
            raise ValueError(f"mixing must be {NO_MIXING} or {AS_WIDE}MIXING, as in {AS_WIDE}go; got {self.mixing!r}")
        _ = self.gpt_config(vocab_size=1)  # which checks the rest

    @property
    def parametrization(self) -> Parametrization | None:
        """The mixing of the streams; None for a plain network."""
        plain = self.mixing == NO_MIXING or self.as_wide_as is not None
        return None if plain else as_mixing(self.mixing, self.num_streams)

    @property
    def as_wide_as(self) -> str | None:
        """The mixing whose number of parameters the plain network has, or None."""
        return self.mixing.removeprefix(AS_WIDE) if self.mixing.startswith(AS_WIDE) else None

    @property
    def coefficient_rate_ratio(self) -> float:
        """Learning rate of the coefficients as a multiple of that of all other weights."""
        rate = self.coefficient_learning_rate
        return 1.0 if rate is None else rate / self.learning_rate

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens in an update."""
        return self.batch_size * self.accumulation * self.context_length

    def gpt_config(self, vocab_size: int) -> GPTConfig:
        """Return the configuration of the model."""
        config = GPTConfig(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_channels=self.num_channels,
            context_length=self.context_length,
            vocab_size=vocab_size,
            dropout=self.dropout,
            mixing=self.parametrization,
            start=self.start,
            total_leak=self.total_leak,
            initial_scale=self.initial_scale,
            dynamic=self.dynamic,
            readout=self.readout,
        )
        if self.as_wide_as is None:
            return config
        wanted = replace(self, mixing=self.as_wide_as).gpt_config(vocab_size).num_parameters
        return replace(config, hidden_channels=_hidden_channels(config, wanted))

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up to the peak, then cosine decay."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / (self.warmup_steps + 1)
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        height = 0.5 * (1 + math.cos(math.pi * share))
        return self.final_learning_rate + height * (self.learning_rate - self.final_learning_rate)

    @classmethod
    def from_dict(cls, options: dict[str, Any]) -> Recipe:
        """Restore a recipe from `dataclasses.asdict`; unknown fields are an error, missing ones are as in `EARLIER`."""
        if not isinstance(options, dict):
            raise ValueError(f"a recipe must be a dictionary, got {options!r}")
        if unknown := set(options) - {field.name for field in fields(cls)}:
            raise ValueError(
                f"the recipe has fields that this version of gomhc does not know: {', '.join(sorted(unknown))}; "
                f"use the version that wrote it, or a newer one"
            )
        return cls(**{**EARLIER, **options})


def _hidden_channels(plain: GPTConfig, wanted: int) -> int:
    """Return the width of the feed-forward networks for which the plain network is nearest in size to `wanted`."""
    one_wider = plain.num_layers * (2 * plain.num_channels + 1)
    return plain.feed_forward_width + max(0, round((wanted - plain.num_parameters) / one_wider))
