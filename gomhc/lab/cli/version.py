"""`gomhc version`: the versions of gomhc and torch."""

from __future__ import annotations

import torch

from gomhc.version import __version__


def version() -> None:
    """Print the versions of gomhc and torch."""
    print(f"gomhc {__version__}, torch {torch.__version__}")
