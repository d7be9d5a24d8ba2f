"""Records: what was measured, by which code, where and for how long; one JSON file each.

A record is keyed by its configuration and by the code that its numbers depend on (see
`gomhc.lab.results.code_version`), so that it is found again as long as neither has changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gomhc.lab.files import Damaged, read_sealed, remove_unfinished, seal, write_atomically


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run, and everything needed to run it again."""

    experiment: str
    """Name of the experiment, as in `gomhc reproduce --only`."""
    run: str
    """The kind of run: the name of its class."""
    configuration: dict[str, Any]
    """The run's fields."""
    full_size: bool
    """Whether the run had the paper's sizes; a claim that holds with smaller ones holds at reduced scale."""
    key: str
    """Hash of experiment, run, configuration and code version: the name of the file."""
    code_version: str
    """Hash of the sources that the numbers depend on."""
    commit: str
    """Commit of the repository, with `+` if there were uncommitted changes; empty outside a repository."""
    versions: dict[str, str]
    """Versions of gomhc, Python, torch and numpy."""
    device: str
    """The kind of machine and the number of threads."""
    wall_time: float
    """Duration in seconds."""
    metrics: dict[str, Any]
    """What was measured: numbers, strings, and nested lists and dictionaries of them; None where not finite."""

    @property
    def seed(self) -> int | None:
        """The seed of the run, or None if it has none."""
        return self.configuration.get("seed")


def key_of(experiment: str, run: str, configuration: dict[str, Any], code_version: str) -> str:
    """The name under which a record is kept."""
    identity = json.dumps([experiment, run, configuration, code_version], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:20]


def select(records: Iterable[Record], run: str | None = None, **configuration: Any) -> list[Record]:
    """The records whose configuration has these values (and that are of this kind of run)."""
    return [
        record
        for record in records
        if (run is None or record.run == run)
        and all(record.configuration.get(name) == value for name, value in configuration.items())
    ]


def only(records: Iterable[Record], run: str | None = None, **configuration: Any) -> Record:
    """The one record of which `select` is true; a LookupError where there are none or several."""
    matching = select(records, run, **configuration)
    if len(matching) != 1:
        raise LookupError(f"expected one record of {run or 'any run'} with {configuration}, got {len(matching)}")
    return matching[0]


@dataclass(frozen=True)
class Store:
    """A folder of records: `<folder>/<experiment>/<key>.json`."""

    folder: Path

    def path(self, experiment: str, key: str) -> Path:
        """The file of the record with this key."""
        return self.folder / experiment / f"{key}.json"

    def load(self, experiment: str, key: str) -> Record | None:
        """The record, None where there is none yet, and `Damaged` where the file does not hold what was written."""
        path = self.path(experiment, key)
        try:
            values = read_sealed(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error}") from error
        if set(values) != {field.name for field in fields(Record)} or not isinstance(values["metrics"], dict):
            raise Damaged(f"{path} does not have the fields of a record")
        record = Record(**values)
        expected = key_of(record.experiment, record.run, record.configuration, record.code_version)
        if (record.experiment, record.key, expected) != (experiment, key, key):
            raise Damaged(f"{path} holds another record than its name says")
        return record

    def save(self, record: Record) -> Path:
        """Write it whole or not at all."""
        path = self.path(record.experiment, record.key)
        write_atomically(path, seal(finite(asdict(record))))
        return path

    def remove_unfinished(self) -> None:
        """Delete what killed writers left half written; only where no other process writes records now."""
        for folder in self.folder.glob("*"):
            remove_unfinished(folder, "*.json")


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not have (infinite, not a number) by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value
