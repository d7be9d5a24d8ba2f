"""`python -m gomhc`, as torchrun needs it."""

from __future__ import annotations

from gomhc.cli import main

main()
