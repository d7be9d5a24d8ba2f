"""`gomhc doctor`: which kernels run here?"""

from __future__ import annotations

import torch

from gomhc import kernels
from gomhc.lab.cli.version import version


def doctor() -> None:
    """Say which kernels run on this machine, and why."""
    version()
    print(f"{torch.get_num_threads()} threads, CUDA {'available' if torch.cuda.is_available() else 'not available'}")
    for name, reason in kernels.reasons().items():
        print(f"{name:8} {reason}")
