"""The metrics of a run: one JSON object per line in RUN/metrics.jsonl, and the same curves for TensorBoard.

A resumed run drops the records after its checkpoint, complete or not, and writes them again. Each checkpoint holds the
length and the SHA-256 of the file at that time, so that changes of the file are noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gomhc.lab.files import Damaged, open_regular, remove_unfinished, write_atomically

FILE = "metrics.jsonl"
LONGEST_LINE, LARGEST_FILE = 2**24, 2**32
"""Maximum number of bytes that are read into memory at once."""
Metrics = Mapping[str, Any]
"""One record: `step` and the metrics of that step or evaluation."""


class History:
    """The open metrics of a run."""

    def __init__(self, run: Path, first_step: int = 0, written: tuple[int, str] | None = None) -> None:
        """Continue from `first_step`, at which the file had the length and SHA-256 in `written`; None for a new run."""
        path = run / FILE
        remove_unfinished(run, FILE)
        kept = _first_bytes(path, *written) if written is not None else b""
        if kept is None:
            warnings.warn(f"{path} was changed after the checkpoint; its readable records are kept", stacklevel=3)
            records = (record for record in read(run) if record["step"] < first_step)
            kept = "".join(json.dumps(record) + "\n" for record in records).encode()
        write_atomically(path, kept)
        self.gradient_norms = [
            record["gradient_norm"] for record in read(run) if isinstance(record.get("gradient_norm"), float)
        ]
        self._length, self._digest = len(kept), hashlib.sha256(kept)
        self._file = path.open("ab")
        self._board = _tensorboard(run / "tensorboard", first_step)

    @property
    def written(self) -> tuple[int, str]:
        """Length and SHA-256 of the file."""
        return self._length, self._digest.hexdigest()

    def append(self, record: Metrics) -> None:
        """Write a record; it survives a crash of the process, but not yet of the machine."""
        line = (json.dumps(record) + "\n").encode()
        self._file.write(line)
        self._file.flush()
        self._length += len(line)
        self._digest.update(line)
        if self._board is not None:
            for name, value in _numbers(record):
                self._board.add_scalar(name, value, record["step"])

    def flush(self) -> None:
        """Write everything to disk, before a checkpoint that refers to it."""
        os.fsync(self._file.fileno())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read(run: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run, without invalid lines, such as the incomplete last line of a killed process."""
    path = run / FILE
    if not path.exists():
        return
    with open_regular(path) as file:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                yield record


def require_no_links(run: Path) -> None:
    """Raise `Damaged` if a file or folder that a run writes is a link, which could lead to files of others."""
    for name in (FILE, "checkpoints", "tensorboard"):
        if (run / name).is_symlink():
            raise Damaged(f"{run / name} must not be a link; make the whole folder {run} a link instead")


def _first_bytes(path: Path, length: int, digest: str) -> bytes | None:
    """Return the first `length` bytes of the file, or None if their SHA-256 is another."""
    try:
        with open_regular(path) as file:
            content = file.read(length) if length <= min(LARGEST_FILE, os.fstat(file.fileno()).st_size) else b""
    except FileNotFoundError:
        return None
    return content if hashlib.sha256(content).hexdigest() == digest else None


def _numbers(record: Metrics, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            yield prefix + name, value


def _tensorboard(folder: Path, first_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # TensorBoard is optional (gomhc[train]); metrics.jsonl has the same numbers
        return None
    return SummaryWriter(str(folder), purge_step=first_step)
