"""Text is streamed as it is made, ends where the document ends, and is the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from gomhc.lab.data.tokenizers import CharacterTokenizer
from gomhc.lab.training.sampling import stream_text
from gomhc.models import GPT, GPTConfig

TOKENIZER = CharacterTokenizer("abcdefgh", has_end=True)


@pytest.fixture
def model() -> GPT:
    sizes: dict[str, Any] = {"num_layers": 1, "num_heads": 1, "num_channels": 8, "context_length": 16}
    return GPT(GPTConfig(vocab_size=TOKENIZER.vocab_size, **sizes), torch.Generator().manual_seed(0)).eval()


class Scripted(GPT):
    """Says these tokens, whatever it is asked."""

    def __init__(self, script: Sequence[int]) -> None:
        super().__init__(GPTConfig(num_layers=1, num_heads=1, num_channels=4, context_length=8, vocab_size=300))
        self.script = script

    def stream(self, tokens: torch.Tensor, num_tokens: int, **_: Any) -> Iterator[torch.Tensor]:
        for token in self.script[:num_tokens]:
            yield torch.tensor([[token]])


class Bytes(CharacterTokenizer):
    """Each byte is a token; 256 ends a document."""

    end_of_text = 256  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


def test_same_seed_writes_the_same_and_another_something_else(model: GPT) -> None:
    def text(seed: int) -> str:
        return "".join(stream_text(model, TOKENIZER, "ab", num_tokens=30, seed=seed))

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) > 1


def test_text_goes_on_beyond_the_context(model: GPT) -> None:
    tokenizer = CharacterTokenizer("abcdefghi", has_end=False)
    assert len("".join(stream_text(model, tokenizer, "", num_tokens=50))) == 50


def test_text_ends_with_the_document() -> None:
    assert list(stream_text(Scripted([104, 105, 256, 120]), Bytes("", True), "", num_tokens=9)) == ["h", "i"]


def test_character_of_several_tokens_comes_when_it_is_whole() -> None:
    script = list("é→".encode())
    assert list(stream_text(Scripted(script), Bytes("", True), "", num_tokens=9)) == ["é", "→"]


def test_bytes_that_never_become_a_character_are_shown_at_the_end() -> None:
    assert "".join(stream_text(Scripted([0xC3]), Bytes("", True), "", num_tokens=9)) == "\N{REPLACEMENT CHARACTER}"
