"""Which matrix does this vector of free reals mean? One parametrization a file, and one registry of them."""

from __future__ import annotations

from gomhc.birkhoff.average import Average
from gomhc.birkhoff.identity import Identity
from gomhc.birkhoff.kronecker import Kronecker
from gomhc.birkhoff.linear_sinkhorn import LinearSinkhorn
from gomhc.birkhoff.orthostochastic import Orthostochastic
from gomhc.birkhoff.parametrization import Fit, Parametrization, Promise
from gomhc.birkhoff.permutations import Permutations
from gomhc.birkhoff.samplers import SAMPLERS, balance
from gomhc.birkhoff.sinkhorn import Sinkhorn
from gomhc.birkhoff.transportation import Transportation
from gomhc.birkhoff.unconstrained import Unconstrained
from gomhc.birkhoff.unistochastic import Unistochastic

PARAMETRIZATIONS: dict[str, type[Parametrization]] = {
    cls.key: cls
    for cls in (
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
    )
}
"""Name on the command line -> class. Tests and tables run over it, so a method that is added here is covered."""

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
    "balance",
]
