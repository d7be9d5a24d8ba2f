"""The parametrizations that are tested: all of the registry, and each option set to a second value.

A method that is added to `gomhc.PARAMETRIZATIONS` is tested the day it is registered.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import gomhc
from gomhc import (
    Average,
    BoundedOffDiagonal,
    Circulant,
    Kronecker,
    Orthogonal,
    Orthostochastic,
    Parametrization,
    Promise,
    RowStochastic,
    Sinkhorn,
    SinkhornV4,
    Transportation,
    Unistochastic,
)
from gomhc.birkhoff.rotations import ROTATIONS

REGISTERED = [cls(num_streams=4) for cls in gomhc.PARAMETRIZATIONS.values()]
OTHER_SIZES = [cls(num_streams=d) for d in (1, 2, 3) for cls in gomhc.PARAMETRIZATIONS.values()]
OPTIONS: list[Parametrization] = [
    Orthostochastic(num_streams=4, expressivity=1),
    Orthostochastic(num_streams=3, expressivity=3),
    Orthostochastic(num_streams=4, rotation="exponential"),
    Orthostochastic(num_streams=4, rotation="householder"),
    Orthostochastic(num_streams=4, rotation="givens"),
    *(Orthostochastic(num_streams=d, expressivity=1, rotation=rotation) for d in (1, 3) for rotation in ROTATIONS),
    Orthostochastic(num_streams=3, layout="square"),
    Unistochastic(num_streams=3, expressivity=1),
    SinkhornV4(num_streams=3, epsilon=1e-8),
    Kronecker(num_streams=6, factors=(3, 2)),
    Kronecker(num_streams=6, factors=(Orthostochastic(num_streams=3), Transportation(num_streams=2))),
    Kronecker(num_streams=6, factors=(Sinkhorn(num_streams=3), 2)),
    Kronecker(num_streams=6, factors=(Orthogonal(num_streams=3), Circulant(num_streams=2))),
    Kronecker(num_streams=4, factors=(RowStochastic(num_streams=2), Orthogonal(num_streams=2))),
    Orthogonal(num_streams=4, rotation="quaternions"),
    BoundedOffDiagonal(num_streams=3, bound=0.1),
    Average(num_streams=4, num_terms=3, term=Kronecker(num_streams=4)),
    Average(num_streams=3, num_terms=2, term=Average(num_streams=3)),
]
ALL = REGISTERED + OTHER_SIZES + OPTIONS
EXACT = [parametrization for parametrization in ALL if parametrization.promise == Promise.EXACT]


def name(parametrization: Parametrization | None) -> str:
    if parametrization is None:
        return "none"
    options = {key: value for key, value in vars(parametrization).items() if key not in ("num_streams", "initial_leak")}
    return "-".join([parametrization.key, str(parametrization.num_streams), *map(_short, options.values())])


def _short(value: object) -> str:
    if isinstance(value, Parametrization):
        return f"({name(value)})"
    return "x".join(map(_short, value)) if isinstance(value, tuple) else str(value)


def each(parametrizations: Sequence[Parametrization | None]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("parametrization", parametrizations, ids=map(name, parametrizations))
