"""Files that are written whole, and checked when they are read back.

A sealed file is a JSON object whose first line holds the SHA-256 of all that follows, so that a changed bit is noticed:

    {"sha256": "2c26b4...",
    "step": 100, ...}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from io import BufferedReader
from pathlib import Path
from typing import Any

LARGEST = 2**28
"""Bytes of a JSON file that are read into memory at most; ours have at most a few million."""
WINDOWS = os.name == "nt"
_SEAL = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n')


class Damaged(ValueError):
    """A file that does not hold what was written to it."""


def seal(values: dict[str, Any], indent: int | None = None) -> str:
    """The text of a sealed file; `unseal` is its inverse."""
    body = json.dumps(values, indent=indent, allow_nan=False).removeprefix("{").lstrip("\n") + "\n"
    return f'{{"sha256": "{hashlib.sha256(body.encode()).hexdigest()}",\n{body}'


def unseal(content: bytes) -> dict[str, Any]:
    """The values of a sealed file; `Damaged` if a single bit of it has changed."""
    head = _SEAL.match(content)
    if head is None:
        raise Damaged("it does not begin with its checksum")
    if hashlib.sha256(content[head.end() :]).hexdigest() != head[1].decode():
        raise Damaged("its checksum does not match its content")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:  # sealed by somebody else
        raise Damaged(f"it is not JSON: {error}") from None
    del values["sha256"]
    return values


def read(path: Path, most: int = LARGEST) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Damaged(f"{path} is larger than {most:,} bytes, which no such file is")
    return content


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8."""
    try:
        return read(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, got other bytes at {error.start}; convert it") from None


def read_sealed(path: Path) -> dict[str, Any]:
    """The values of the sealed file at this path."""
    try:
        return unseal(read(path))
    except Damaged as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def sha256(path: Path) -> str:
    """Hash of the content of a regular file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, unless it is a device or a pipe, from which reading might never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damaged(f"{path} must be a regular file, got a folder, a device or a pipe")
    return os.fdopen(descriptor, "rb")


def write_atomically(path: Path, content: str | bytes) -> None:
    """To a temporary file beside it, to the disk, then in its place: readers see the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's own is for the owner alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    flush(path.parent)


def remove_unfinished(folder: Path, name: str) -> None:
    """Delete temporary files of killed writers of files called `name`, a pattern; only where nobody writes them now."""
    for temporary in folder.glob(f".{name}.????????"):  # as mkstemp names them
        temporary.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a file or a folder with all that is in it; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Onto the disk, so that what is moved into place is whole even if the machine stops."""
    if WINDOWS and path.is_dir():  # Windows cannot open folders, and orders their changes itself
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # Windows flushes only what may be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_writable(path: Path) -> None:
    """An OSError now, rather than after the work, if the file at `path` cannot be written. Makes its folder."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a file to write to, got a folder or a device; choose another path")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass
