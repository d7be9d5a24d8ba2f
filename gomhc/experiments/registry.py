"""Which experiments are there? In the order of the report."""

from __future__ import annotations

from gomhc.experiments.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
"""All of them; their names are unique."""
