"""`python -m gomhc`, as torchrun needs it."""

from __future__ import annotations

from gomhc.lab.cli import main

main()
