"""How is a run asked to stop? By SIGINT (Ctrl-C) or SIGTERM: it ends the step in hand, saves, and leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether somebody asked."""

    wanted: bool = False


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Inside, the first signal asks; a second Ctrl-C ends at once, as it always did."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread alone
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.wanted = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
