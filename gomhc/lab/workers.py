"""Work in several processes, none of which outlives the one that started them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from gomhc.lab.freed_memory import keep_freed_memory

T = TypeVar("T")
SYNCHRONIZE, INFINITE = 0x00100000, 0xFFFFFFFF
"""Constants of the Windows API: the right to wait for a process, and a wait without limit."""


def in_processes(
    function: Callable[..., T], arguments: Iterable[tuple[Any, ...]], jobs: int, *, in_order: bool
) -> Iterator[T]:
    """What `function` returns for each of these arguments, by `jobs` processes; in their order, or as it comes."""
    from joblib import Parallel, delayed  # here, because listing experiments and judging records takes no workers
    from joblib.parallel import LokyBackend, get_active_backend

    # A worker whose memory has grown is replaced by a new one; joblib warns of it, and nothing is lost.
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
    order = "generator" if in_order else "generator_unordered"
    ours = isinstance(get_active_backend()[0], LokyBackend)  # not a cluster's, which has a life of its own
    first: dict[str, Any] = {"initializer": _begin, "initargs": (os.getpid(),)} if ours and jobs > 1 else {}
    parallel = Parallel(n_jobs=jobs, return_as=order, batch_size=1, **first)
    return parallel(delayed(function)(*values) for values in arguments)


def _begin(parent: int) -> None:
    """Prepare a worker. It leaves signals that a whole group of processes gets to the process that started it.

    Ctrl-C goes to every process of a terminal; SIGTERM comes to all of them from `timeout`, or from a cluster.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    _end_with(parent)


def _end_with(parent: int) -> None:
    """Watch the process that started this one: when it is gone, however it ended, this one ends too."""

    def watch() -> None:
        _wait_for_end(parent)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _wait_for_end(parent: int) -> None:
    """Return when the parent of this process has ended."""
    if sys.platform == "win32":  # where the number of the parent stays what it was
        import ctypes

        process = ctypes.windll.kernel32.OpenProcess(SYNCHRONIZE, False, parent)
        ctypes.windll.kernel32.WaitForSingleObject(process, INFINITE)
        return
    while os.getppid() == parent:
        time.sleep(1)
