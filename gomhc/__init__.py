"""Exact doubly stochastic maps for multi-stream residual networks (go-mHC and the methods it is compared to)."""

from __future__ import annotations

from gomhc import kernels, models, statistics
from gomhc.birkhoff import (
    PARAMETRIZATIONS,
    Average,
    Identity,
    Kronecker,
    LinearSinkhorn,
    Orthostochastic,
    Parametrization,
    Permutations,
    Promise,
    Sinkhorn,
    Transportation,
    Unconstrained,
    Unistochastic,
)
from gomhc.integrations.parametrize import doubly_stochastic
from gomhc.layers import HyperConnection, LearnedReadout, Residual, expand, parameter_groups, readout
from gomhc.version import __version__

__all__ = [
    "PARAMETRIZATIONS",
    "Average",
    "HyperConnection",
    "Identity",
    "Kronecker",
    "LearnedReadout",
    "LinearSinkhorn",
    "Orthostochastic",
    "Parametrization",
    "Permutations",
    "Promise",
    "Residual",
    "Sinkhorn",
    "Transportation",
    "Unconstrained",
    "Unistochastic",
    "__version__",
    "doubly_stochastic",
    "expand",
    "kernels",
    "models",
    "parameter_groups",
    "readout",
    "statistics",
]
