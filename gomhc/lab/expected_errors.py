"""Errors that a person caused or can help, such as bad input, a full disk or too little memory: words are enough."""

from __future__ import annotations

import torch


def is_expected(error: BaseException) -> bool:
    """Return whether the words of an error are enough; where they are not, it is the traceback that tells."""
    return isinstance(error, ValueError | OSError) or lacks_memory(error)


def lacks_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which torch says in a RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def words_of(error: BaseException) -> str:
    """Return what went wrong, on one line."""
    text = str(error)
    if isinstance(error, FileExistsError | NotADirectoryError) and error.filename:
        text = f"{error.filename} must be in a folder, or be one, but a file is there; choose another path"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()) or type(error).__name__
