"""One process at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}
"""What file systems say that have no locks, such as Lustre unless it is mounted with them."""


class InUse(ValueError):
    """Another process holds the lock; the message names it."""


@contextmanager
def lock(file: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock on `file`, which is there meanwhile; `InUse` if another process has it, unless we `wait` for it.

    The operating system frees it when the process ends, so that there are no stale locks. `what` it protects is for the
    message: `InUse: runs/go-1 is in use by process 4242 (gomhc) on host since 2026-11-16 15:08:41`.
    """
    descriptor = _take(file, what, wait)
    try:
        yield
    finally:
        _release(descriptor, file)


def _release(descriptor: int, file: Path) -> None:
    """Delete the file, unless it has become another's, and free the lock."""
    if sys.platform == "win32":  # deletes no file that is open, here or in another process
        os.close(descriptor)
        with suppress(OSError):
            file.unlink()
        return
    if _is_still_there(descriptor, file):
        with suppress(OSError):
            file.unlink()
    os.close(descriptor)


def _take(file: Path, what: str, wait: bool) -> int:
    told = False
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            _require_plain(descriptor, file)
            while not _is_locked(descriptor):
                holder = _holder(descriptor)
                if not wait:
                    raise InUse(f"{what} is in use by {holder}; wait for it, or choose another folder")
                if not told:
                    warnings.warn(f"waiting for {what}, which is in use by {holder}", stacklevel=4)
                told = True
                time.sleep(0.1)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_still_there(descriptor, file):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _ourselves().encode())
            return descriptor
        os.close(descriptor)  # its holder deleted it: it protects nothing any more


def _require_plain(descriptor: int, file: Path) -> None:
    """Nothing is written to a pipe, or through another name of a file that is not ours."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise ValueError(f"{file} must be a regular file, got a pipe, a device or a link; delete it")


def _is_locked(descriptor: int) -> bool:
    """Lock the file; False if another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 2**30, os.SEEK_SET)  # a byte far behind the end, so that the text can be read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        warnings.warn("this file system has no locks: make sure that no other process writes here", stacklevel=5)
    return True


def _holder(descriptor: int) -> str:
    """What the holder has written about itself; it may have got the lock just now, and write in a moment."""
    for _ in range(20):
        os.lseek(descriptor, 0, os.SEEK_SET)
        text = os.read(descriptor, 1000).decode(errors="replace").strip()
        if text:
            return text
        time.sleep(0.05)
    return "another process"


def _is_still_there(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _ourselves() -> str:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # no arguments: one may be a secret
    return f"process {os.getpid()} ({name}) on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
