"""Tokenizers: characters of a corpus, byte pairs trained on it, or GPT-2's byte pairs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gomhc.checks import require_choice, require_whole
from gomhc.lab.data.download import Remote
from gomhc.lab.files import read, sha256

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

END_OF_TEXT = "<|endoftext|>"
"""Separator of documents in a text file."""

TRAINED = "bpe:"
"""Start of the name of byte pairs that are trained on the corpus; the size of the vocabulary follows."""
FEWEST_PAIRS = 257
"""Size of the smallest vocabulary of byte pairs: all bytes and the end of a document."""
GPT2_VOCABULARY = Remote(
    "gpt2/vocab.json",
    "https://huggingface.co/openai-community/gpt2/resolve/main/vocab.json",
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
)
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""Regular expression that splits text into words before GPT-2 merges bytes."""


class Tokenizer(ABC):
    """Base class of tokenizers; `decode(encode(text)) == text`."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of different tokens."""

    @property
    @abstractmethod
    def end_of_text(self) -> int | None:
        """Token that follows each document; None if the corpus is a single document."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; special tokens in it are encoded as ordinary characters."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without the ends of documents."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the argument from which `from_description` restores the tokenizer."""


@dataclass(frozen=True)
class CharacterTokenizer(Tokenizer):
    """One token per character of a corpus, sorted; the last token is the end of a document, if there are several."""

    characters: str
    has_end: bool

    def __post_init__(self) -> None:
        if not isinstance(self.characters, str) or len(set(self.characters)) < len(self.characters):
            raise ValueError(f"characters must be text with no character twice, got {str(self.characters)[:100]!r}")
        if not isinstance(self.has_end, bool):
            raise ValueError(f"has_end must be true or false, got {self.has_end!r}")

    @classmethod
    def of(cls, documents: Iterable[str], has_end: bool) -> CharacterTokenizer:
        """Return a tokenizer for the characters of these documents."""
        characters: set[str] = set()
        for document in documents:
            characters.update(document)
        return cls("".join(sorted(characters)), has_end)

    @cached_property
    def _token_of(self) -> dict[str, int]:
        return {character: token for token, character in enumerate(self.characters)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + self.has_end

    @property
    def end_of_text(self) -> int | None:
        return len(self.characters) if self.has_end else None

    def encode(self, text: str) -> list[int]:
        try:
            return [self._token_of[character] for character in text]
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
class TrainedTokenizer(Tokenizer):
    """Byte pairs that were trained on a corpus; the last token is the end of a document."""

    pairs: str
    """The vocabulary and its merges, as the tokenizers package writes them (JSON)."""

    def __post_init__(self) -> None:
        if not isinstance(self.pairs, str):
            raise ValueError(f"pairs must be text, got {self.pairs!r}")

    @classmethod
    def of(cls, documents: Iterable[str], vocab_size: int) -> TrainedTokenizer:
        """Train byte pairs on these documents; small corpora may have fewer pairs than `vocab_size` asks for."""
        tokenizers = _tokenizers()
        encoding = tokenizers.Tokenizer(tokenizers.models.BPE())
        encoding.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        encoding.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size - 1,
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        encoding.train_from_iterator(documents, trainer)
        return cls(encoding.to_str())

    @cached_property
    def _encoding(self) -> tokenizers.Tokenizer:
        try:
            return _tokenizers().Tokenizer.from_str(self.pairs)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # which tokenizers raises itself, not a subclass
            raise ValueError(f"these are not byte pairs of the tokenizers package: {error}") from None

    @property
    def vocab_size(self) -> int:
        return self._encoding.get_vocab_size() + 1

    @property
    def end_of_text(self) -> int:
        return self._encoding.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self._encoding.encode(text).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._encoding.decode([token for token in tokens if token != self.end_of_text])

    def describe(self) -> dict[str, Any]:
        return {"kind": "bpe", "pairs": self.pairs}


def trained_vocab_size(name: str) -> int | None:
    """Return the size of the vocabulary in the name of a `TrainedTokenizer`, bpe:2048, or None for other names."""
    if not name.startswith(TRAINED):
        return None
    size = name.removeprefix(TRAINED)
    require_whole(
        "the size of the vocabulary in bpe:SIZE", int(size) if size.isdecimal() else size, FEWEST_PAIRS, 2**16
    )
    return int(size)


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ModuleNotFoundError:
        raise ValueError("byte pairs need tokenizers; install it with: pip install 'gomhc[train]'") from None
    return tokenizers


@dataclass(frozen=True)
class BytePairTokenizer(Tokenizer):
    """GPT-2's 50,257 byte pairs."""

    source: str = "gpt2"
    """Folder with GPT-2's `vocab.json`, or `gpt2` to download it."""
    sha256: str | None = None
    """Required SHA-256 of `vocab.json`; None accepts any."""

    @cached_property
    def _file(self) -> Path:
        file = GPT2_VOCABULARY.fetch() if self.source == "gpt2" else Path(self.source) / "vocab.json"
        if not file.exists():
            raise ValueError(
                f"the tokenizer must be character, bpe:2048 (any size), gpt2, or a folder with GPT-2's vocab.json, got "
                f"{self.source!r}"
            )
        if self.sha256 not in (None, sha256(file)):
            raise ValueError(f"{file} has changed since this run started; restore the original vocabulary")
        return file

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        try:
            import tiktoken
        except ModuleNotFoundError:
            raise ValueError("GPT-2's tokenizer needs tiktoken; install it with: pip install 'gomhc[train]'") from None
        ranks, special = self._vocabulary()
        return tiktoken.Encoding("gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=special)

    def _vocabulary(self) -> tuple[dict[bytes, int], dict[str, int]]:
        """Return the tokens of byte pairs and of the end of a text.

        Tokens are numbered in the order of the merges, so merges.txt is not needed.
        """
        try:
            vocabulary = json.loads(read(self._file))
            special = {END_OF_TEXT: vocabulary.pop(END_OF_TEXT)}
            ranks = {bytes(_BYTES[character] for character in token): number for token, number in vocabulary.items()}
            if sorted([*ranks.values(), *special.values()]) != list(range(len(ranks) + 1)):
                raise ValueError("tokens are not numbered consecutively from 0")
            if not all(bytes([byte]) in ranks for byte in range(256)):
                raise ValueError("a byte has no token")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{self._file} is not GPT-2's vocabulary: {error}") from None
        return ranks, special

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
        return {"kind": "gpt2", "source": self.source, "sha256": sha256(self._file)}


def _printable_bytes() -> dict[str, int]:
    """Return GPT-2's characters for bytes: printable bytes are themselves, the others start at 256."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _printable_bytes()


def from_description(description: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer that `describe` described."""
    fields = dict(description)
    kinds: dict[str, type[CharacterTokenizer | TrainedTokenizer | BytePairTokenizer]] = {
        "character": CharacterTokenizer,
        "bpe": TrainedTokenizer,
        "gpt2": BytePairTokenizer,
    }
    kind = fields.pop("kind", None)
    require_choice("the tokenizer's kind", kind, kinds)
    try:
        return kinds[kind](**fields)
    except TypeError as error:
        raise ValueError(f"this is not a description of a tokenizer: {error}") from None
