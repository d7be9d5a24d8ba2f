"""How does text become numbers, and numbers text again? By characters, or by GPT-2's byte pairs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gomhc.data.download import Remote

if TYPE_CHECKING:
    import tiktoken

END_OF_TEXT = "<|endoftext|>"
"""What stands between documents in a text file."""

GPT2_VOCABULARY = Remote(
    "gpt2/vocab.json",
    "https://huggingface.co/openai-community/gpt2/resolve/main/vocab.json",
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
)
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""Where GPT-2 cuts text before it joins bytes."""


class Tokenizer(ABC):
    """Text to numbers and back; `decode(encode(text)) == text`."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """How many different tokens there are."""

    @property
    @abstractmethod
    def end_of_text(self) -> int | None:
        """What stands behind each document; None where the corpus is one text."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text. A text is data: what looks like a special token in it is read as characters."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; ends of documents are empty."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What `from_description` makes it again from."""


@dataclass(frozen=True)
class CharacterTokenizer(Tokenizer):
    """A token for each character of a corpus, in their order; the end of a document, if there are several, is last."""

    characters: str
    has_end: bool

    @classmethod
    def of(cls, documents: Iterable[str], has_end: bool) -> CharacterTokenizer:
        """For the characters of these documents."""
        found: set[str] = set()
        for document in documents:
            found.update(document)
        return cls("".join(sorted(found)), has_end)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + self.has_end

    @property
    def end_of_text(self) -> int | None:
        return len(self.characters) if self.has_end else None

    def encode(self, text: str) -> list[int]:
        try:
            return [self._numbers[character] for character in text]
        except KeyError as error:
            raise ValueError(
                f"the character {error} is not among the {len(self.characters)} that this model knows: "
                f"{self.characters!r}"
            ) from None

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.characters[token] for token in tokens if token != self.end_of_text)

    def describe(self) -> dict[str, Any]:
        return {"kind": "character", "characters": self.characters, "has_end": self.has_end}


@dataclass(frozen=True)
class BytePairTokenizer(Tokenizer):
    """GPT-2's 50,257 byte pairs; `source` is a folder with its `vocab.json`, or `gpt2` for a download."""

    source: str = "gpt2"

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        try:
            import tiktoken
        except ModuleNotFoundError:
            raise ValueError("GPT-2's tokenizer needs tiktoken; install it with: pip install 'gomhc[train]'") from None
        file = GPT2_VOCABULARY.fetch() if self.source == "gpt2" else Path(self.source) / "vocab.json"
        if not file.exists():
            raise ValueError(
                f"the tokenizer must be character, gpt2, or a folder with GPT-2's vocab.json, got {self.source!r}"
            )
        vocabulary = json.loads(file.read_text(encoding="utf-8"))
        special = {END_OF_TEXT: vocabulary.pop(END_OF_TEXT)}
        # The numbers are the order in which bytes are joined, so the list of joins (merges.txt) is not needed.
        ranks = {bytes(_BYTES[character] for character in token): number for token, number in vocabulary.items()}
        return tiktoken.Encoding("gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=special)

    @property
    def vocab_size(self) -> int:
        return self._encoding.n_vocab

    @property
    def end_of_text(self) -> int | None:
        return self._encoding.eot_token

    def encode(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._encoding.decode([token for token in tokens if token != self.end_of_text])

    def describe(self) -> dict[str, Any]:
        return {"kind": "gpt2", "source": self.source}


def _printable_bytes() -> dict[str, int]:
    """GPT-2 writes bytes as characters: printable ones as themselves, the others as those from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _printable_bytes()


def from_description(description: dict[str, Any]) -> Tokenizer:
    """The tokenizer that `describe` described."""
    if description["kind"] == "character":
        return CharacterTokenizer(description["characters"], description["has_end"])
    return BytePairTokenizer(description["source"])
