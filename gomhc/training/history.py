"""What happened in a run? One JSON record a line, in RUN/metrics.jsonl, and the same curves for TensorBoard.

A run that is resumed forgets the records from that step on, whole or torn, and writes them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"
Record = Mapping[str, Any]


class History:
    """The records of a run; `append` adds one."""

    def __init__(self, run: Path, first_step: int) -> None:
        path = run / FILE
        kept = [record for record in read(run) if record["step"] < first_step]
        self.gradient_norms = [record["gradient_norm"] for record in kept if "gradient_norm" in record]
        partial = path.with_name(f".partial-{FILE}")
        partial.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        os.replace(partial, path)
        self._file = path.open("a", encoding="utf-8")
        self._board = _tensorboard(run / "tensorboard", first_step)

    def append(self, record: Record) -> None:
        """Written at once: it survives the process, though not yet the machine."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
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
    """The records of a run, up to a line that was torn."""
    path = run / FILE
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _numbers(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
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
