"""Which documents are trained on, and which are held out?

A corpus is named: `stories` (from our grammar), `shakespeare` and `tinystories` (downloads), or any text file, in which
<|endoftext|> stands behind each document.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from gomhc.lab.data.download import Remote
from gomhc.lab.data.story_grammar import stories
from gomhc.lab.data.tokenizers import END_OF_TEXT
from gomhc.lab.files import sha256

HELD_OUT = 20
"""One document in so many is for validation."""
FEW = 200
"""Fewer documents than this are split in their order, so that there is surely one on either side."""
NUM_STORIES = 10_000
"""Of our own grammar: six megabytes."""

_TINYSTORIES = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"
TINYSTORIES_TRAIN = Remote(
    "tinystories/train.txt",
    f"{_TINYSTORIES}/TinyStories-train.txt",
    "c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f",
)
TINYSTORIES_VALIDATION = Remote(
    "tinystories/valid.txt",
    f"{_TINYSTORIES}/TinyStories-valid.txt",
    "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
)
SHAKESPEARE = Remote(
    "shakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


class Corpus(ABC):
    """Documents to train on and documents to validate on; both can be read more than once."""

    alphabet: ClassVar[str] = ""
    """Characters that a tokenizer of characters knows even if no document has them."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever a document does."""

    @abstractmethod
    def train(self) -> Iterator[str]:
        """The documents to train on."""

    @abstractmethod
    def validation(self) -> Iterator[str]:
        """The documents that are held out."""


@dataclass(frozen=True)
class Split(Corpus):
    """One text file, split by documents.

    Of many documents, those whose hash says so are held out: copies of a document are all on the same side. Of few, the
    last ones are, and of a single one its last tenth of the lines.
    """

    path: Path

    @property
    def fingerprint(self) -> str:
        return sha256(self.path)

    def train(self) -> Iterator[str]:
        return self._side(held_out=False)

    def validation(self) -> Iterator[str]:
        return self._side(held_out=True)

    def _side(self, held_out: bool) -> Iterator[str]:
        first = list(islice(documents(self.path), FEW))
        if len(first) == FEW:
            return (document for document in documents(self.path) if is_held_out(document) == held_out)
        if len(first) == 1:
            return iter([_halves(first[0])[held_out]])
        cut = len(first) - max(1, len(first) // HELD_OUT)
        return iter(first[cut:] if held_out else first[:cut])


@dataclass(frozen=True)
class Files(Corpus):
    """Two text files: one to train on, one to validate on."""

    train_path: Path
    validation_path: Path

    @property
    def fingerprint(self) -> str:
        return sha256(self.train_path) + sha256(self.validation_path)

    def train(self) -> Iterator[str]:
        return documents(self.train_path)

    def validation(self) -> Iterator[str]:
        return documents(self.validation_path)


@dataclass(frozen=True)
class Stories(Corpus):
    """Those of our own grammar."""

    alphabet: ClassVar[str] = "".join(map(chr, range(32, 127)))  # so that a prompt may have any name in it

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(stories(FEW)).encode()).hexdigest() + str(NUM_STORIES)

    def train(self) -> Iterator[str]:
        return (story for story in stories(NUM_STORIES) if not is_held_out(story))

    def validation(self) -> Iterator[str]:
        return (story for story in stories(NUM_STORIES) if is_held_out(story))


def find(name: str) -> Corpus:
    """The corpus of that name, downloaded if it has to be, or the text file at that path."""
    if name == "stories":
        return Stories()
    if name == "shakespeare":
        return Split(SHAKESPEARE.fetch())
    if name == "tinystories":
        return Files(TINYSTORIES_TRAIN.fetch(), TINYSTORIES_VALIDATION.fetch())
    if not Path(name).is_file():
        raise ValueError(f"the corpus must be stories, shakespeare, tinystories or a text file, got {name!r}")
    return Split(Path(name))


def documents(path: Path) -> Iterator[str]:
    """The documents of a text file, one after the other, without the empty ones."""
    lines: list[str] = []
    with path.open(encoding="utf-8") as file:
        try:
            for line in file:
                *ended, rest = line.split(END_OF_TEXT)
                for part in ended:
                    yield from _document([*lines, part])
                    lines.clear()
                lines.append(rest)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8, got other bytes at {error.start}; convert it") from None
    yield from _document(lines)


def _document(lines: list[str]) -> Iterator[str]:
    if text := "".join(lines).strip("\n"):
        yield text


def is_held_out(document: str) -> bool:
    """Decided by its content alone."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8]) % HELD_OUT == 0


def _halves(text: str) -> tuple[str, str]:
    """The first nine tenths and the rest, cut at the end of a line where there is one."""
    place = len(text) * 9 // 10
    cut = text.rfind("\n", 0, place) + 1 or place
    return text[:cut], text[cut:]
