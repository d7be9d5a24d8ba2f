"""Corpora: documents for training and documents held out for validation.

A corpus is `stories` (made by a grammar), `shakespeare` or `tinystories` (downloads), or the path of a text file in
which <|endoftext|> follows each document.
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
"""One document in this many is held out for validation, on average."""
FEW = 200
"""With fewer documents than this, the last ones are held out, so that neither side is empty."""
NUM_STORIES = 10_000
"""Number of stories from the grammar; six megabytes."""

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
    """Base class of corpora; both sides can be read more than once."""

    alphabet: ClassVar[str] = ""
    """Characters that a character tokenizer knows even if no document contains them."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash that changes whenever a document does."""

    @abstractmethod
    def train(self) -> Iterator[str]:
        """Yield the documents for training."""

    @abstractmethod
    def validation(self) -> Iterator[str]:
        """Yield the documents for validation."""


@dataclass(frozen=True)
class Split(Corpus):
    """One text file, split into documents for training and for validation.

    Many documents are split by their hash, so that copies of a document are on the same side. Of few documents the last
    ones are held out, and of a single document its last tenth.
    """

    path: Path

    @property
    def fingerprint(self) -> str:
        return sha256(self.path)

    def train(self) -> Iterator[str]:
        if self._has_many_documents():
            return (document for document in documents(self.path) if not is_held_out(document))
        return iter(self._few_documents()[0])

    def validation(self) -> Iterator[str]:
        if self._has_many_documents():
            return (document for document in documents(self.path) if is_held_out(document))
        return iter(self._few_documents()[1])

    def _has_many_documents(self) -> bool:
        return next(islice(documents(self.path), FEW - 1, None), None) is not None

    def _few_documents(self) -> tuple[list[str], list[str]]:
        """Return the documents for training and for validation."""
        everything = list(documents(self.path))
        if len(everything) == 1:
            beginning, end = _split_off_last_tenth(everything[0])
            return [beginning], [end]
        cut = len(everything) - max(1, len(everything) // HELD_OUT)
        return everything[:cut], everything[cut:]


@dataclass(frozen=True)
class Files(Corpus):
    """Two text files, one for training and one for validation."""

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
    """The stories of `story_grammar`."""

    alphabet: ClassVar[str] = "".join(map(chr, range(32, 127)))  # so that a prompt can contain any name

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(stories(FEW)).encode()).hexdigest() + str(NUM_STORIES)

    def train(self) -> Iterator[str]:
        return (story for story in stories(NUM_STORIES) if not is_held_out(story))

    def validation(self) -> Iterator[str]:
        return (story for story in stories(NUM_STORIES) if is_held_out(story))


def find(name: str) -> Corpus:
    """Return the corpus of that name, downloaded if necessary, or the text file at that path."""
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
    """Yield the documents of a text file, without empty ones."""
    lines: list[str] = []
    with path.open(encoding="utf-8") as file:
        try:
            for line in file:
                *ended, rest = line.split(END_OF_TEXT)
                for part in ended:
                    yield from _document([*lines, part])
                    lines.clear()
                lines.append(rest)
        except UnicodeDecodeError:
            raise ValueError(
                f"{path} must be text in UTF-8, got other bytes at {_bad_byte(path)}; convert it"
            ) from None
    yield from _document(lines)


def _bad_byte(path: Path) -> int:
    """Return where the first byte is that is not UTF-8, counted from the start of the file."""
    start = 0
    with path.open("rb") as file:
        for line in file:
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return start + error.start
            start += len(line)
    return start


def _document(lines: list[str]) -> Iterator[str]:
    if text := "".join(lines).strip("\n"):
        yield text


def is_held_out(document: str) -> bool:
    """Return whether a document is for validation; depends only on its content."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8]) % HELD_OUT == 0


def _split_off_last_tenth(text: str) -> tuple[str, str]:
    """Return the first nine tenths and the rest, cut at the end of a line if there is one."""
    nine_tenths = len(text) * 9 // 10
    cut = text.rfind("\n", 0, nine_tenths) + 1 or nine_tenths
    return text[:cut], text[cut:]
