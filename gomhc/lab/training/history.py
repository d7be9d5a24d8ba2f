"""The records of a run: one JSON object a line, in RUN/metrics.jsonl, and the same curves for TensorBoard.

A run that is resumed forgets the records from that step on, whole or torn, and writes them again. Each checkpoint knows
the length and the SHA-256 of the file when it was written, so that a change of it is noticed.
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
"""Bytes that are read into memory at once."""
Metrics = Mapping[str, Any]


class History:
    """The records of a run; `append` adds one."""

    def __init__(self, run: Path, first_step: int = 0, written: tuple[int, str] | None = None) -> None:
        """Continue from `first_step`, when the file had the length and SHA-256 in `written`; None for a new run."""
        path = run / FILE
        remove_unfinished(run, FILE)
        kept = _first_bytes(path, *written) if written is not None else b""
        if kept is None:
            warnings.warn(
                f"{path} was changed after the checkpoint; its records that can be read are kept", stacklevel=3
            )
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
        """Written at once: it survives the process, though not yet the machine."""
        line = (json.dumps(record) + "\n").encode()
        self._file.write(line)
        self._file.flush()
        self._length += len(line)
        self._digest.update(line)
        if self._board is not None:
            for name, value in _numbers(record):
                self._board.add_scalar(name, value, record["step"])

    def flush(self) -> None:
        """Onto the disk, before a checkpoint that counts on it."""
        os.fsync(self._file.fileno())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """No more records."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read(run: Path) -> Iterator[dict[str, Any]]:
    """The records of a run, without lines that are none, such as one that was torn when a process died."""
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
    """`Damaged` if something that a run writes is a link, through which other files would be changed."""
    for name in (FILE, "checkpoints", "tensorboard"):
        if (run / name).is_symlink():
            raise Damaged(f"{run / name} must be of the run itself, got a link; let the whole folder {run} be one")


def _first_bytes(path: Path, length: int, digest: str) -> bytes | None:
    """So many bytes of the file, or None if they are not those of that SHA-256."""
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
    except ImportError:  # an extra, gomhc[train]; the records have it all
        return None
    return SummaryWriter(str(folder), purge_step=first_step)
