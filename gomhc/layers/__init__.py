"""How do streams meet a branch?"""

from __future__ import annotations

from gomhc.layers.coefficients import Coefficients, Start
from gomhc.layers.groups import parameter_groups
from gomhc.layers.hyper_connection import HyperConnection
from gomhc.layers.residual import Residual
from gomhc.layers.streams import LearnedReadout, expand, readout

__all__ = [
    "Coefficients",
    "HyperConnection",
    "LearnedReadout",
    "Residual",
    "Start",
    "expand",
    "parameter_groups",
    "readout",
]
