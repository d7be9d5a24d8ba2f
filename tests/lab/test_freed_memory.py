"""Freed memory stays in the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from gomhc.lab.freed_memory import keep_freed_memory
{first}
for again in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [torch.ones(2**22) for _ in range(6)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    del buffers
print(after - before)
"""


def new_pages(first: str) -> int:
    """Pages that the system hands out for six tensors of 16 MB, the second time that they are made."""
    printed = subprocess.run([sys.executable, "-c", FAULTS.format(first=first)], capture_output=True, check=True)
    return int(printed.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not that of glibc")
def test_tensors_get_the_memory_of_freed_ones() -> None:
    assert new_pages("assert keep_freed_memory()") < new_pages("") / 4
