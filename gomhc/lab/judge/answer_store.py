"""Sampled stories and received answers in one SQLite file, which is written as soon as something arrives.

Every row of stories and answers ends with a hash of its other values, which is checked when the file is opened.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gomhc.lab.judge.answers import CRITERIA, Scores
from gomhc.lab.judge.stories import Story
from gomhc.lab.lock import InUse

VERSION = 2
SCHEMA = """
CREATE TABLE stories (
    weights TEXT, sampling TEXT, opening TEXT, completion TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (weights, sampling, opening)
);
CREATE TABLE texts (story TEXT PRIMARY KEY, opening TEXT NOT NULL, completion TEXT NOT NULL);
CREATE TABLE protocols (protocol TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE answers (
    judge TEXT, protocol TEXT, story TEXT, trial INTEGER,
    grammar INTEGER, creativity INTEGER, consistency INTEGER, missing TEXT,
    answer TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (judge, protocol, story, trial)
);
"""
TABLES = {"stories", "texts", "protocols", "answers"}
SEALED = ("stories", "answers")


@dataclass(frozen=True)
class Question:
    """One trial of one judge on one story."""

    judge: str
    protocol: str
    story: Story
    trial: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Primary key in the store."""
        return self.judge, self.protocol, self.story.key, self.trial


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The final answer to a question, after all attempts."""

    scores: Scores | None
    """None if no attempt gave valid scores."""
    missing: str | None = None
    """Why there are no scores; None if there are."""
    text: str = ""
    """The answer of the judge, verbatim."""
    input_tokens: int = 0
    """Input tokens of all attempts, as reported by the endpoint."""
    output_tokens: int = 0
    """Output tokens of all attempts, as reported by the endpoint."""


class AnswerStore:
    """The open file, as a context manager; only one process can open it at a time, so that nothing is asked twice."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            if file.exists():
                _require_store(file)
            self._database = _connect(file)
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise InUse(f"{file} is in use by another gomhc judge; wait, or choose another --store") from None
            raise ValueError(f"{file} cannot be opened as a store of answers: {error}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not a store of answers ({error}); choose another --store") from None

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")  # answers cost money: they must survive a power failure
        run("BEGIN EXCLUSIVE")
        (version,) = run("PRAGMA user_version").fetchone()
        if (version, _names(self._database)) == (0, set()):
            for statement in SCHEMA.split(";"):
                run(statement)
        elif version == 1:  # before rows had a seal
            for table in SEALED:
                run(f"ALTER TABLE {table} ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
                for number, *row in run(f"SELECT rowid, * FROM {table}").fetchall():
                    run(f"UPDATE {table} SET seal = ? WHERE rowid = ?", (row_hash(row[:-1]), number))
        if _names(self._database) != TABLES:
            raise ValueError(f"{self.file} is not a store of answers of this version; choose another --store")
        run(f"PRAGMA user_version = {VERSION}")
        run("COMMIT")
        self._check()

    def _check(self) -> None:
        """Raise a ValueError if the file is damaged."""
        run = self._database.execute
        damage = [text for (text,) in run("PRAGMA integrity_check(1)") if text != "ok"]
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(SCHEMA)
            damage += [
                f"the columns of {table}"
                for table in TABLES
                if _columns(empty, table) != _columns(self._database, table)
            ]
        for table in SEALED if not damage else ():
            for *row, seal in run(f"SELECT * FROM {table}"):
                if row_hash(row) != seal:
                    damage.append(f"a row of {table} was changed: {str(row)[:100]}")
        if damage:
            raise ValueError(f"{self.file} is damaged ({damage[0]}); restore a copy of it, or choose another --store")

    def stories(self, weights: str, sampling: str) -> list[Story]:
        """Return the stories that were sampled from these weights with these settings."""
        query = "SELECT opening, completion FROM stories WHERE weights = ? AND sampling = ?"
        return [Story(*row) for row in self._database.execute(query, (weights, sampling))]

    def keep_stories(self, weights: str, sampling: str, stories: Iterable[Story]) -> None:
        """Store sampled stories, all or none."""
        rows = [(weights, sampling, story.opening, story.completion) for story in stories]
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO stories VALUES (?, ?, ?, ?, ?)", [(*row, row_hash(row)) for row in rows]
        )
        self._database.execute("COMMIT")

    def keep_questions(self, protocol: str, text: str, stories: Iterable[Story]) -> None:
        """Store the protocol and the stories of questions, all or none, for later readers of the file."""
        rows = [(story.key, story.opening, story.completion) for story in stories]
        self._database.execute("BEGIN")
        self._database.execute("INSERT OR IGNORE INTO protocols VALUES (?, ?)", (protocol, text))
        self._database.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question, or None if there is none yet."""
        query = f"""SELECT {", ".join(CRITERIA)}, missing, answer, input_tokens, output_tokens FROM answers
                    WHERE judge = ? AND protocol = ? AND story = ? AND trial = ?"""
        row = self._database.execute(query, question.key).fetchone()
        if row is None:
            return None
        scores, (missing, text, tokens_in, tokens_out) = row[: len(CRITERIA)], row[len(CRITERIA) :]
        return Answer(
            scores=None if missing is not None else Scores(*scores),
            missing=missing,
            text=text,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
        )

    def keep_answer(self, question: Question, answer: Answer) -> None:
        """Store an answer; it is on disk when this returns."""
        scores = answer.scores or (None,) * len(CRITERIA)
        row = (*question.key, *scores, answer.missing, answer.text, answer.input_tokens, answer.output_tokens)
        self._database.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, row_hash(row)))


def row_hash(row: Sequence[object]) -> str:
    """Return a hash of the values of a row."""
    return hashlib.sha256(json.dumps(row, default=repr).encode()).hexdigest()


def _columns(database: sqlite3.Connection, table: str) -> list[tuple[str, str, int]]:
    """Return name, type and position in the primary key of each column."""
    return [(name, kind, key) for _, name, kind, _, _, key in database.execute(f"PRAGMA table_info({table})")]


def _connect(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=0, isolation_level=None)
    database.execute("PRAGMA locking_mode = EXCLUSIVE")  # held until the file is closed or the process ends
    return database


def _require_store(file: Path) -> None:
    """Raise a ValueError, without changing the file, if it is not a store."""
    if not file.is_file():
        raise ValueError(f"{file} must be a file, got a folder or a device; choose another --store")
    # Immutable: read without a lock, and without applying a write-ahead log.
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?immutable=1", uri=True)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        names = _names(database)
    if (version, names) != (0, set()) and (version not in (1, VERSION) or names != TABLES):
        raise ValueError(f"{file} is not a store of answers of this version; choose another --store")


def _names(database: sqlite3.Connection) -> set[str]:
    """Return the names of everything in the file except the indices of primary keys."""
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master") if not name.startswith("sqlite_")}
