"""Which experiments are there? In the order of the report."""

from __future__ import annotations

from gomhc.experiments.counts import CountsAndFlops
from gomhc.experiments.depth import DepthDecoupling
from gomhc.experiments.exact import Exactness
from gomhc.experiments.experiment import Experiment
from gomhc.experiments.gain import Gain
from gomhc.experiments.gradients import Gradients
from gomhc.experiments.parameters import Parameters
from gomhc.experiments.wall_clock import WallClock

EXPERIMENTS: tuple[Experiment, ...] = (
    Exactness(),
    Gain(),
    DepthDecoupling(),
    Gradients(),
    CountsAndFlops(),
    WallClock(),
    Parameters(),
)
"""All of them; their names are unique."""
