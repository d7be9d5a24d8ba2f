"""Maps from free reals to doubly stochastic matrices: one parametrization a file, and one registry of them."""

from __future__ import annotations

from gomhc.birkhoff.average import Average
from gomhc.birkhoff.identity import Identity
from gomhc.birkhoff.kronecker import Kronecker
from gomhc.birkhoff.linear_sinkhorn import LinearSinkhorn
from gomhc.birkhoff.orthostochastic import Orthostochastic
from gomhc.birkhoff.parametrization import Fit, Parametrization, Promise
from gomhc.birkhoff.permutations import Permutations
from gomhc.birkhoff.registry import PARAMETRIZATIONS, as_mixing, register
from gomhc.birkhoff.samplers import SAMPLERS, balance
from gomhc.birkhoff.sinkhorn import Sinkhorn
from gomhc.birkhoff.transportation import Transportation
from gomhc.birkhoff.unconstrained import Unconstrained
from gomhc.birkhoff.unistochastic import Unistochastic

for _cls in (
    Orthostochastic,
    Unistochastic,
    Sinkhorn,
    LinearSinkhorn,
    Permutations,
    Kronecker,
    Average,
    Transportation,
    Identity,
    Unconstrained,
):
    register(_cls)  # here rather than in each file: the order of the registry is that of the tables

__all__ = [
    "PARAMETRIZATIONS",
    "SAMPLERS",
    "Average",
    "Fit",
    "Identity",
    "Kronecker",
    "LinearSinkhorn",
    "Orthostochastic",
    "Parametrization",
    "Permutations",
    "Promise",
    "Sinkhorn",
    "Transportation",
    "Unconstrained",
    "Unistochastic",
    "as_mixing",
    "balance",
    "register",
]
