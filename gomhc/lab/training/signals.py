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
    """Whether a signal has asked to stop; it is the handler of these signals."""

    asked: Callable[[], None]
    wanted: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; a second Ctrl-C raises KeyboardInterrupt."""
        if self.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.wanted:
            self.wanted = True
            self.asked()


@contextmanager
def stop_on_signals(asked: Callable[[], None]) -> Iterator[Stop]:
    """Inside, the first signal sets `wanted` and calls `asked`; a second Ctrl-C raises KeyboardInterrupt.

    Inside another `stop_on_signals`, be the same one, so that a signal stops the whole and not only this part of it.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield Stop(asked)
        return
    outer = signal.getsignal(signal.SIGINT)
    if isinstance(outer, Stop):
        yield outer
        return
    stop = Stop(asked)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
