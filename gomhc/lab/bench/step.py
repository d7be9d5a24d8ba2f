"""Time and memory of a training step of the paper's GPT (forward, backward, AdamW) with each mixing and with none.

c = num_channels, d = num_streams
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar

import torch

from gomhc.birkhoff import PARAMETRIZATIONS
from gomhc.lab.bench.timing import Benchmark, Contender
from gomhc.layers import parameter_groups
from gomhc.models import GPT, GPTConfig

PLAIN = "plain residual"
NUM_STREAMS = 4
METHODS = ("go", "permutations", "kronecker", "sinkhorn", "identity")


@dataclass(frozen=True, kw_only=True)
class Step(Benchmark):
    """A training step of the 30M GPT, with one residual stream and with four."""

    rounds: int = 10  # a step takes seconds
    """Number of times that each method is timed; the table shows medians."""
    batch_size: int = 4
    """Number of sequences in a step."""
    context_length: int = 256
    """Number of tokens in a sequence."""
    num_layers: int = GPTConfig.num_layers
    """Number of blocks of the GPT."""
    num_channels: int = GPTConfig.num_channels
    """Number of channels of a stream (c)."""
    num_heads: int = GPTConfig.num_heads
    """Number of attention heads."""
    vocab_size: int = GPTConfig.vocab_size
    """Size of the vocabulary."""
    compile: bool = False
    """Compile each model with torch.compile, as one graph."""
    compile_seconds: dict[str, float] = field(default_factory=dict, init=False)
    """Method -> seconds of its first step, in which it is compiled."""

    title: ClassVar[str] = "A training step of the GPT: forward, backward, AdamW"
    references: ClassVar[tuple[str, ...]] = (PLAIN,)

    def contenders(self) -> list[Contender]:
        plain = GPTConfig(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_channels=self.num_channels,
            vocab_size=self.vocab_size,
            context_length=max(self.context_length, GPTConfig.context_length),
        )
        mixings = {key: PARAMETRIZATIONS[key](num_streams=NUM_STREAMS) for key in METHODS}
        configs = {PLAIN: plain} | {key: replace(plain, mixing=mixing) for key, mixing in mixings.items()}
        configs["go, static"] = replace(configs["go"], dynamic=False)
        sizes = {
            "layers": self.num_layers,
            "c": self.num_channels,
            "batch": self.batch_size,
            "tokens": self.context_length,
        }
        steps = {name: self._step(config) for name, config in configs.items()}
        for name, step in steps.items() if self.compile else ():
            start = perf_counter()
            step()
            self.compile_seconds[name] = perf_counter() - start
        return [Contender(name, sizes, step) for name, step in steps.items()]

    def remarks(self) -> list[str]:
        first = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.compile_seconds.items())
        compiled = [f"seconds of the first step, including compilation: {first}"] if self.compile else []
        return [f"every method except {PLAIN} has d = {NUM_STREAMS} streams", *compiled]

    def _step(self, config: GPTConfig) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(0)
        model = GPT(config, generator)
        optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.1), lr=1e-4)
        tokens, targets = torch.randint(self.vocab_size, (2, self.batch_size, self.context_length), generator=generator)
        forward = torch.compile(model, fullgraph=True) if self.compile else model

        def run() -> None:
            _, loss = forward(tokens, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return run
