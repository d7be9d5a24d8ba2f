"""Tokens on disk, and the batch of a step.

A batch is a function of the seed and the step alone: whoever knows these can go on from any step, on any number of
processes, with the batches that an undisturbed run would have had.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from gomhc.data.corpora import Corpus
from gomhc.data.download import cache_directory
from gomhc.data.tokenizers import BytePairTokenizer, CharacterTokenizer, Tokenizer, from_description

Tokens = NDArray[np.unsignedinteger]
Batch = tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
"""Tokens, and those that follow each of them."""

FORMAT = 2
"""Of the files on disk; a change makes them anew."""


@dataclass(frozen=True)
class Dataset:
    """A corpus as numbers, mapped from disk."""

    tokenizer: Tokenizer
    train: Tokens
    validation: Tokens
    fingerprint: str
    """Changes whenever a token does."""


def prepare(corpus: Corpus, tokenizer_name: str) -> Dataset:
    """The corpus in tokens, made once and then kept in the cache."""
    key = hashlib.sha256(f"{FORMAT} {corpus.fingerprint} {tokenizer_name}".encode()).hexdigest()[:16]
    folder = cache_directory() / "tokens" / key
    if not (folder / "tokens.json").exists():
        _encode(corpus, _tokenizer(corpus, tokenizer_name), folder)
    about = json.loads((folder / "tokens.json").read_text())
    train, validation = (np.memmap(folder / f"{side}.bin", about["dtype"], "r") for side in ("train", "validation"))
    return Dataset(from_description(about["tokenizer"]), train, validation, about["fingerprint"])


def _tokenizer(corpus: Corpus, name: str) -> Tokenizer:
    if name != "character":
        return BytePairTokenizer(name)
    has_end = next(iter(_from_second(corpus.train())), None) is not None
    return CharacterTokenizer.of(chain([corpus.alphabet], corpus.train(), corpus.validation()), has_end)


def _from_second(documents: Iterable[str]) -> Iterable[str]:
    rest = iter(documents)
    next(rest, None)
    return rest


def _encode(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Write both sides beside where they go, and move them there when they are whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix="partial-"))
    try:
        dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        digest = hashlib.sha256()
        for side, documents in (("train", corpus.train()), ("validation", corpus.validation())):
            with (partial / f"{side}.bin").open("wb") as file:
                for document in documents:
                    tokens = tokenizer.encode(document)
                    if tokenizer.end_of_text is not None:
                        tokens.append(tokenizer.end_of_text)
                    content = np.array(tokens, dtype).tobytes()
                    digest.update(content)
                    file.write(content)
                if file.tell() == 0:
                    raise ValueError(f"the {side} side of the corpus is empty: there must be text to learn from")
        about = {"dtype": dtype.name, "tokenizer": tokenizer.describe(), "fingerprint": digest.hexdigest()}
        (partial / "tokens.json").write_text(json.dumps(about))
        if not folder.exists():  # another process may have been faster
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def batch(tokens: Tokens, context_length: int, size: int, *, seed: int, step: int) -> Batch:
    """`size` windows at random places; which ones, the seed and the step say."""
    draw = np.random.Generator(np.random.Philox(key=[seed, step]))
    return _windows(tokens, draw.integers(0, len(tokens) - context_length, size), context_length)


def evaluation_windows(tokens: Tokens, context_length: int, most: int) -> Batch:
    """At most `most` windows, evenly over the text and not overlapping."""
    count = min(most, (len(tokens) - 1) // context_length)
    starts = np.linspace(0, len(tokens) - 1 - context_length, count).astype(np.int64)
    return _windows(tokens, starts, context_length)


def _windows(tokens: Tokens, starts: NDArray[np.integer], context_length: int) -> Batch:
    found = np.stack([tokens[start : start + context_length + 1].astype(np.int64) for start in starts])
    windows = torch.from_numpy(found)
    return windows[:, :-1], windows[:, 1:]
