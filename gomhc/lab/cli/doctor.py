"""`gomhc doctor`: the kernels that run on this machine."""

from __future__ import annotations

import torch

from gomhc import kernels
from gomhc.lab.cli.version import version


def doctor() -> None:
    """Print which kernels run on this machine, and why."""
    version()
    print(f"{torch.get_num_threads()} threads, CUDA {'available' if torch.cuda.is_available() else 'not available'}")
    for name, reason in kernels.reasons().items():
        print(f"{name:8} {reason}")
