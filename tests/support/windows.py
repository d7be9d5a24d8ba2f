"""The file system of Windows, simulated on Linux as far as gomhc depends on it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gomhc.lab import files, lock


def simulate(patch: pytest.MonkeyPatch) -> None:
    """Make files, folders, locks and line ends behave as on Windows until the patch is undone.

    Folders cannot be opened; only files that may be written are flushed; what is open cannot be deleted, renamed or
    replaced; text is written with CR LF; `msvcrt` locks files and there is no `fcntl`.
    """
    patch.setattr(files, "WINDOWS", True)
    patch.setattr(lock, "sys", SimpleNamespace(platform="win32", argv=sys.argv))
    patch.setitem(sys.modules, "fcntl", None)
    patch.setitem(sys.modules, "msvcrt", _msvcrt())
    patch.setattr(files, "os", _Os())
    patch.setattr(Path, "write_text", _write_with_crlf)
    for name in ("unlink", "rename", "replace"):
        patch.setattr(os, name, _refusing_what_is_open(getattr(os, name)))


class _Os:
    """`os` whose `open` and `fsync` are those of Windows."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return os.open(path, flags)

    def fsync(self, descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.fsync(descriptor)


def _msvcrt() -> ModuleType:
    module = ModuleType("msvcrt")
    module.LK_NBLCK = 2  # type: ignore[attr-defined]

    def locking(descriptor: int, mode: int, num_bytes: int) -> None:
        assert (mode, num_bytes) == (2, 1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None

    module.locking = locking  # type: ignore[attr-defined]
    return module


def _write_with_crlf(path: Path, text: str, encoding: str | None = None) -> int:
    return path.write_bytes(text.replace("\n", "\r\n").encode(encoding or "cp1252"))


def _refusing_what_is_open(function: Any) -> Any:
    def refusing(path: Any, *others: Any, **options: Any) -> None:
        folder = options.get("dir_fd")
        full = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path) if folder is not None else path
        for place in (full, *others):
            if _is_open(Path(place).resolve()):
                raise PermissionError(errno.EACCES, "used by another process", str(place))
        function(path, *others, **options)

    return refusing


def _is_open(path: Path) -> bool:
    """Whether this process has the file open or mapped, or a file in the folder."""
    inside = f"{path}{os.sep}"
    return any(name == str(path) or name.startswith(inside) for name in (*_open_files(), *_mapped_files()))


def _open_files() -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if stat.S_ISREG(os.stat(f"/proc/self/fd/{descriptor}").st_mode):
                names.append(name)
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return names


def _mapped_files() -> list[str]:
    return [line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").open() if "/" in line]
