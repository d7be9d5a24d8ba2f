"""Which methods are compared, and what are they called? One name each, in records, figures and claims.

d = num_streams, s = expressivity
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gomhc.birkhoff import (
    Identity,
    Kronecker,
    LinearSinkhorn,
    Orthostochastic,
    Parametrization,
    Permutations,
    Sinkhorn,
    Transportation,
    Unconstrained,
    Unistochastic,
)

METHODS: dict[str, Callable[..., Parametrization]] = {
    "go-s1": partial(Orthostochastic, expressivity=1),
    "go-s2": partial(Orthostochastic, expressivity=2),
    "go-s3": partial(Orthostochastic, expressivity=3),
    "go-unitary-s1": partial(Unistochastic, expressivity=1),
    "go-unitary-s2": partial(Unistochastic, expressivity=2),
    "mhc": Sinkhorn,
    "mhc-linear": LinearSinkhorn,
    "mhc-lite": Permutations,
    "kromhc": Kronecker,
    "transportation": Transportation,
    "identity": Identity,
    "hc": Unconstrained,
}
"""Name in records -> what makes it for a number of streams: `METHODS["go-s2"](num_streams=4)`."""
