"""How is this operation computed? One file an operation; each has a plain torch version that reads as its equation."""

from __future__ import annotations

from gomhc.kernels.dispatch import available, use

__all__ = ["available", "use"]
