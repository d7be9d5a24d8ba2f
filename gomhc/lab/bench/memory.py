"""Peak memory of a function call."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import ProfilerActivity, profile


def peak_megabytes(function: Callable[[], object]) -> float:
    """Return the peak memory of one call beyond what was allocated before it, in MB of 10⁶ bytes.

    Counts every buffer of torch's CPU allocator: results, tensors saved for backward, gradients, and scratch space of
    operators. Does not count inputs, parameters and optimizer states that existed before, nor memory that a library
    requests from the system directly.
    """
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            function()
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    allocated = accumulate((size for _, size in changes), initial=0)  # a size is negative where a buffer is freed
    return max(allocated) / 1e6


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn standard error off: torch 2.13 writes two lines to it for each profile, and no setting prevents that."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
