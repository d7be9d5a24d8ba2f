"""Maps from free reals to matrices that mix streams: one parametrization a file, and one registry of them."""

from __future__ import annotations

from gomhc.birkhoff.average import Average
from gomhc.birkhoff.bounded_off_diagonal import BoundedOffDiagonal
from gomhc.birkhoff.circulant import Circulant
from gomhc.birkhoff.identity import Identity
from gomhc.birkhoff.kronecker import Kronecker
from gomhc.birkhoff.linear_sinkhorn import LinearSinkhorn
from gomhc.birkhoff.orthogonal import Orthogonal
from gomhc.birkhoff.orthostochastic import Orthostochastic
from gomhc.birkhoff.parametrization import Fit, Parametrization
from gomhc.birkhoff.permutations import Permutations
from gomhc.birkhoff.polytope_projection import PolytopeProjection
from gomhc.birkhoff.promise import Promise
from gomhc.birkhoff.registry import PARAMETRIZATIONS, as_mixing, register
from gomhc.birkhoff.row_stochastic import RowStochastic
from gomhc.birkhoff.samplers import SAMPLERS, balance
from gomhc.birkhoff.sinkhorn import Sinkhorn
from gomhc.birkhoff.spectral_sphere import SpectralSphere
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
    PolytopeProjection,
    Circulant,
    Identity,
    SpectralSphere,
    Orthogonal,
    RowStochastic,
    BoundedOffDiagonal,
    Unconstrained,
):
    register(_cls)  # here rather than in each file: the order of the registry is that of the tables

__all__ = [
    "PARAMETRIZATIONS",
    "SAMPLERS",
    "Average",
    "BoundedOffDiagonal",
    "Circulant",
    "Fit",
    "Identity",
    "Kronecker",
    "LinearSinkhorn",
    "Orthogonal",
    "Orthostochastic",
    "Parametrization",
    "Permutations",
    "PolytopeProjection",
    "Promise",
    "RowStochastic",
    "Sinkhorn",
    "SpectralSphere",
    "Transportation",
    "Unconstrained",
    "Unistochastic",
    "as_mixing",
    "balance",
    "register",
]
