"""How much memory does a call hold at most?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import ProfilerActivity, profile


def peak_megabytes(function: Callable[[], object]) -> float:
    """The most that is held at once during one call, beyond what was held before it; MB of 10⁶ bytes.

    Counts every buffer from torch's CPU allocator: results, what autograd keeps, gradients, and scratch inside of
    operators. Inputs, parameters and optimizer states made earlier do not count, nor does memory that a library takes
    from the system itself.
    """
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            function()
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    held = most = 0
    for _, size in changes:  # negative where a buffer is freed
        held += size
        most = max(most, held)
    return most / 1e6


@contextmanager
def _quiet() -> Iterator[None]:
    """Standard error turned off: torch 2.13 writes two lines there for each profile, and no setting prevents it."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
