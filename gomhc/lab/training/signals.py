"""Stopping a run by SIGINT (Ctrl-C) or SIGTERM: it finishes the current step, saves, and exits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether a signal has asked the run to stop."""

    wanted: bool = False


@contextmanager
def stop_on_signals(asked: Callable[[], None]) -> Iterator[Stop]:
    """Inside, the first signal sets `wanted` and calls `asked`; a second Ctrl-C raises KeyboardInterrupt."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.wanted:
            stop.wanted = True
            asked()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
