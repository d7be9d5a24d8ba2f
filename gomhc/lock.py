"""One process at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import socket
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
    message: `InUse: runs/go-1 is in use by process 4242 on host since 2026-11-16 15:08:41 (gomhc train ...)`.
    """
    descriptor = _take(file, what, wait)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows deletes no file that is open
            file.unlink()
        os.close(descriptor)


def _take(file: Path, what: str, wait: bool) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            _lock(descriptor, wait)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise InUse(f"{what} is in use by {holder}; wait for it, or choose another folder") from None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_still_there(descriptor, file):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _ourselves().encode())
            return descriptor
        os.close(descriptor)  # its holder deleted it: it protects nothing any more


def _lock(descriptor: int, wait: bool) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows, where a byte far behind the end of the file is locked
        import msvcrt

        os.lseek(descriptor, 2**30, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
                return
            except OSError:
                if not wait:
                    raise BlockingIOError from None
                time.sleep(0.1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        warnings.warn("this file system has no locks: see that no other process writes here", stacklevel=6)


def _is_still_there(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _ourselves() -> str:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
    return f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')} ({command})"
