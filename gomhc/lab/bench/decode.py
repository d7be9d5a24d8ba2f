"""Time and memory of decoding one more token with a key-value cache: a GPT and an upcycled llama. The llama is also
measured in bfloat16, and reading a prompt.

c = num_channels, d = num_streams
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import ClassVar

import torch

from gomhc.birkhoff import PARAMETRIZATIONS
from gomhc.lab.bench.step import NUM_STREAMS, PLAIN
from gomhc.lab.bench.timing import Benchmark, Contender, is_installed
from gomhc.models import GPT, GPTConfig

METHODS = ("go", "sinkhorn", "identity")
LLAMA = {"layers": 8, "c": 512}
"""Sizes of the llama."""
DTYPES = {32: torch.float32, 16: torch.bfloat16}
"""Bits of a number -> dtype of the llama."""


@dataclass(frozen=True, kw_only=True)
class Decode(Benchmark):
    """Decoding one token at batch size 1, and reading a prompt: the 30M GPT and a llama, with one stream and four."""

    text: int = 64
    """Number of tokens in the key-value cache before the token that is decoded."""
    prompt: int = 256
    """Number of tokens in the prompt that the llama reads at once."""

    title: ClassVar[str] = "Decoding one token, or reading a prompt"
    references: ClassVar[tuple[str, ...]] = (PLAIN,)

    def contenders(self) -> list[Contender]:
        plain = GPTConfig()
        configs = {key: replace(plain, mixing=PARAMETRIZATIONS[key](num_streams=NUM_STREAMS)) for key in METHODS}
        configs = {PLAIN: plain, **configs, "go, static": replace(configs["go"], dynamic=False)}
        sizes = {"layers": plain.num_layers, "c": plain.num_channels, "bits": 32, "tokens": 1}
        contenders = [Contender(name, sizes, self._gpt(config)) for name, config in configs.items()]
        if is_installed("transformers"):
            for bits, tokens in ((32, 1), (16, 1), (32, self.prompt)):
                sizes = {**LLAMA, "bits": bits, "tokens": tokens}
                for name, mixing in ((PLAIN, None), ("go", "go")):
                    contenders.append(Contender(name, sizes, self._llama(mixing, DTYPES[bits], tokens)))
        return contenders

    def remarks(self) -> list[str]:
        missing = "" if is_installed("transformers") else "; not installed: transformers"
        return [
            f"8 layers of c = 512: a llama of transformers, upcycled to {NUM_STREAMS} streams{missing}",
            "tokens: number of tokens in a call",
        ]

    def _gpt(self, config: GPTConfig) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(0)
        model = GPT(config, generator).eval()
        tokens = torch.randint(config.vocab_size, (1, self.text), generator=generator)
        with torch.no_grad():
            _, caches = model._logits(tokens, None)

        @torch.no_grad()
        def run() -> object:
            return model._logits(tokens[:, -1:], caches)

        return run

    def _llama(self, mixing: str | None, dtype: torch.dtype, num_tokens: int) -> Callable[[], object]:
        transformers, integrations = import_module("transformers"), import_module("gomhc")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            hidden_size=LLAMA["c"],
            intermediate_size=4 * LLAMA["c"],
            num_hidden_layers=LLAMA["layers"],
            num_attention_heads=8,
            num_key_value_heads=8,
            vocab_size=GPTConfig.vocab_size,
        )
        model = transformers.LlamaForCausalLM(config).eval()
        if mixing is not None:
            model = integrations.upcycle(model, NUM_STREAMS, mixing)
        model = model.to(dtype)
        tokens = torch.randint(config.vocab_size, (1, max(self.text, num_tokens)))
        if num_tokens > 1:
            return torch.no_grad()(lambda: model(tokens[:, :num_tokens], use_cache=True, logits_to_keep=1))
        with torch.no_grad():
            cache = model(tokens[:, : self.text], use_cache=True).past_key_values

        @torch.no_grad()
        def run() -> None:
            model(tokens[:, -1:], past_key_values=cache, use_cache=True)
            cache.crop(-1)  # forget it again

        return run
