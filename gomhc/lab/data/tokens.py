"""Token files in the cache, and the batches of training.

A batch depends only on the seed and the step, so that a run can resume at any step, on any number of processes, with
the batches of an uninterrupted run.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gomhc.checks import require_choice
from gomhc.lab.data.corpora import Corpus
from gomhc.lab.data.download import cache_directory
from gomhc.lab.data.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    Tokenizer,
    TrainedTokenizer,
    from_description,
    trained_vocab_size,
)
from gomhc.lab.files import Damaged, flush, read_sealed, remove, seal, sha256
from gomhc.lab.lock import lock
from gomhc.shapes import Int

Tokens = NDArray[np.unsignedinteger]
Batch = tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
"""Tokens, and the next token of each."""

FORMAT = 3
"""Version of the files in the cache; files of another version are not used."""
SIDES = ("train", "validation")
ABOUT = "tokens.json"


@dataclass(frozen=True)
class Dataset:
    """The tokens of a corpus, memory-mapped."""

    tokenizer: Tokenizer
    train: Tokens
    validation: Tokens
    fingerprint: str
    """Hash that changes whenever a token does."""


def prepare(corpus: Corpus, tokenizer_name: str) -> Dataset:
    """Return the tokens of a corpus, from the cache if possible; damaged files are made again."""
    key = hashlib.sha256(f"{FORMAT} {corpus.fingerprint} {_identity(tokenizer_name)}".encode()).hexdigest()[:16]
    folder = cache_directory() / "tokens" / key
    dataset = _load(folder, tokenizer_name)
    if dataset is not None:
        return dataset
    locks = cache_directory() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with lock(locks / key, f"the cache {folder}", wait=True):
        dataset = _load(folder, tokenizer_name)  # another process may have been faster
        if dataset is None:
            _encode(corpus, _tokenizer(corpus, tokenizer_name), folder)
            dataset = _load(folder, tokenizer_name)
    assert dataset is not None
    return dataset


def require_windows(data: Dataset, context_length: int) -> None:
    """Raise a ValueError if a side of the corpus is too short for a single window."""
    for side, tokens in (("training", data.train), ("validation", data.validation)):
        if len(tokens) <= context_length:
            raise ValueError(
                f"the {side} part of the corpus has {len(tokens)} tokens, but a context length of {context_length} "
                f"needs at least {context_length + 1}; use a longer text or a shorter context"
            )


def _identity(tokenizer_name: str) -> str:
    """Return what the tokens depend on besides the corpus."""
    ready = _ready_tokenizer(tokenizer_name)
    return tokenizer_name if ready is None else ready.describe()["sha256"]


def _ready_tokenizer(tokenizer_name: str) -> BytePairTokenizer | None:
    """Return the tokenizer of that name, or None if it has to be made from the corpus."""
    made = tokenizer_name == "character" or trained_vocab_size(tokenizer_name) is not None
    return None if made else BytePairTokenizer(tokenizer_name)


def _load(folder: Path, tokenizer_name: str) -> Dataset | None:
    """Return the tokens in the cache after checking them, or None if there are none."""
    if not folder.exists():
        return None
    chosen = _ready_tokenizer(tokenizer_name)
    vocab_size = None if chosen is None else chosen.vocab_size  # here, because its errors do not mean a damaged cache
    try:
        about = read_sealed(folder / ABOUT)
        tokenizer = chosen or from_description(about["tokenizer"])
        most = vocab_size or tokenizer.vocab_size
        train, validation = (_mapped(folder / f"{side}.bin", about, most) for side in SIDES)
        return Dataset(tokenizer, train, validation, about["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"the tokens in {folder} are damaged ({error}); making them again", stacklevel=3)
        return None


def _mapped(file: Path, about: dict[str, Any], vocab_size: int) -> Tokens:
    if sha256(file) != about["files"][file.name]:
        raise Damaged(f"{file.name} has changed")
    require_choice("dtype", about["dtype"], ("uint16", "uint32"))
    tokens: Tokens = np.memmap(file, about["dtype"], "r")
    if tokens.max() >= vocab_size:
        raise Damaged(f"{file.name} has a token {tokens.max()}, but the vocabulary has {vocab_size}")
    return tokens


def _tokenizer(corpus: Corpus, name: str) -> Tokenizer:
    ready, vocab_size = _ready_tokenizer(name), trained_vocab_size(name)
    if ready is not None:
        return ready
    if vocab_size is not None:
        return TrainedTokenizer.of(corpus.train(), vocab_size)
    has_end = next(iter(_from_second(corpus.train())), None) is not None
    return CharacterTokenizer.of(chain([corpus.alphabet], corpus.train(), corpus.validation()), has_end)


def _from_second(documents: Iterable[str]) -> Iterable[str]:
    rest = iter(documents)
    next(rest, None)
    return rest


def _encode(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Write both sides to a temporary folder, and move it into place when it is complete."""
    partial = folder.with_name(f"partial-{folder.name}")
    remove(partial)
    partial.mkdir(parents=True)
    try:
        dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        digest = hashlib.sha256()
        for side, documents in zip(SIDES, (corpus.train(), corpus.validation()), strict=True):
            with (partial / f"{side}.bin").open("wb") as file:
                for document in documents:
                    tokens = tokenizer.encode(document)
                    if tokenizer.end_of_text is not None:
                        tokens.append(tokenizer.end_of_text)
                    content = np.array(tokens, dtype).tobytes()
                    digest.update(content)
                    file.write(content)
                if file.tell() == 0:
                    raise ValueError(
                        f"the {side} side of the corpus is empty; use a text with at least two documents or lines"
                    )
        about = {
            "dtype": dtype.name,
            "tokenizer": tokenizer.describe(),
            "fingerprint": digest.hexdigest(),
            "files": {f"{side}.bin": sha256(partial / f"{side}.bin") for side in SIDES},
        }
        (partial / ABOUT).write_bytes(seal(about).encode())  # as text, Windows would change the ends of lines
        for path in (*partial.iterdir(), partial):
            flush(path)
        remove(folder)  # which is damaged, or it would have been loaded
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def batch(tokens: Tokens, context_length: int, size: int, *, seed: int, step: int) -> Batch:
    """Return `size` windows at random places, which depend only on the seed and the step."""
    draw = np.random.Generator(np.random.Philox(key=[seed, step]))
    return _windows(tokens, draw.integers(0, len(tokens) - context_length, size), context_length)


def evaluation_windows(tokens: Tokens, context_length: int, most: int) -> Batch:
    """Return at most `most` windows, evenly spaced and without overlap."""
    count = min(most, (len(tokens) - 1) // context_length)
    starts = np.linspace(0, len(tokens) - 1 - context_length, count).astype(np.int64)
    return _windows(tokens, starts, context_length)


def _windows(tokens: Tokens, starts: NDArray[np.integer], context_length: int) -> Batch:
    windows = torch.from_numpy(
        np.stack([tokens[start : start + context_length + 1].astype(np.int64) for start in starts])
    )
    return windows[:, :-1], windows[:, 1:]
