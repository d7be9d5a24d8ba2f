"""Which experiments are there? In the order of the report."""

from __future__ import annotations

from gomhc.experiments.counts import CountsAndFlops
from gomhc.experiments.depth import DepthDecoupling
from gomhc.experiments.exact import Exactness
from gomhc.experiments.experiment import Experiment
from gomhc.experiments.gain import Gain
from gomhc.experiments.gradients import Gradients
from gomhc.experiments.map_times import TimesOfMaps
from gomhc.experiments.parameters import Parameters

EXPERIMENTS: tuple[Experiment, ...] = (
    Exactness(),
    Gain(),
    DepthDecoupling(),
    Gradients(),
    CountsAndFlops(),
    TimesOfMaps(),
    Parameters(),
)
"""All of them; their names are unique."""
