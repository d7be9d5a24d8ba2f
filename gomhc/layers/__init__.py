"""Layers of networks with several residual streams."""

from __future__ import annotations

from gomhc.layers.coefficients import DEFAULT_START, INITIAL_SCALE, Coefficients, ReadWriteMix, Start, TwinStart
from gomhc.layers.expand_readout import LearnedReadout, expand, readout
from gomhc.layers.frac_connection import FracConnection
from gomhc.layers.from_logits import FromLogits
from gomhc.layers.groups import parameter_groups
from gomhc.layers.hyper_connection import HyperConnection
from gomhc.layers.residual import Residual
from gomhc.layers.state import Pending, State, written

__all__ = [
    "DEFAULT_START",
    "INITIAL_SCALE",
    "Coefficients",
    "FracConnection",
    "FromLogits",
    "HyperConnection",
    "LearnedReadout",
    "Pending",
    "ReadWriteMix",
    "Residual",
    "Start",
    "State",
    "TwinStart",
    "expand",
    "parameter_groups",
    "readout",
    "written",
]
