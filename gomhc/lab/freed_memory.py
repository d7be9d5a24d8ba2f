"""Memory that a process has freed and will soon want again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`: free memory that goes back to the system, and buffers that are mapped by themselves."""
NEVER, LARGEST_BUFFER = 2**31 - 1, 2**25
"""Largest values that it takes for them."""


def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed tensors of up to 32 MB; returns False where malloc is not glibc's.

    Otherwise it goes back to the system at once and comes back for the next tensor as new pages, which the system first
    fills with zeros: some percent of a training step on the CPU. `GLIBC_TUNABLES` does the same from outside.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all((mallopt(MMAP_THRESHOLD, LARGEST_BUFFER), mallopt(TRIM_THRESHOLD, NEVER)))
