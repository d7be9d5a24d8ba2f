"""`python -m gomhc` is the command `gomhc`."""

from gomhc.cli import main

main()
