"""Operations of one projection by the paper's table (app. B.6), which multiplies each by the number of channels.

d = num_streams, s = expressivity, n = d * s, C = num_channels
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from itertools import accumulate
from operator import mul

from gomhc.birkhoff import (
    Average,
    Identity,
    Kronecker,
    Orthostochastic,
    Parametrization,
    Permutations,
    Transportation,
    Unconstrained,
    Unistochastic,
)
from gomhc.birkhoff.rotations import RotationName
from gomhc.birkhoff.sinkhorn import IteratedNormalization

ROTATION_FLOPS: dict[RotationName, Callable[[int], float]] = {
    "cayley": lambda n: 8 / 3 * n**3,  # the paper's: an LU solve with n right-hand sides
    "exponential": lambda n: 18 * n**3,  # 5 products for the Taylor sum, 4 squarings
    "householder": lambda n: 4 * n**2 * (n - 1),
    "givens": lambda n: 3 * n**2 * (n - 1),
}
"""Operations that make a rotation of size n."""


@singledispatch
def flops(parametrization: Parametrization, num_channels: int) -> float:
    """Count the operations of one projection for C channels."""
    raise ValueError(
        f"the operations of {type(parametrization).__name__} are not counted; "
        f"register a count with @gomhc.lab.experiments.flops.flops.register"
    )


@flops.register
def _(parametrization: Orthostochastic, num_channels: int) -> float:
    n = parametrization.size
    return num_channels * (ROTATION_FLOPS[parametrization.rotation](n) + 4 * n**2)


@flops.register
def _(parametrization: Unistochastic, num_channels: int) -> float:
    """Go-mHC's count, with complex numbers: four times as many operations."""
    n = parametrization.size
    return 4 * num_channels * (8 / 3 * n**3 + 4 * n**2)


@flops.register
def _(parametrization: IteratedNormalization, num_channels: int) -> float:
    return 4 * num_channels * parametrization.num_iterations * parametrization.num_streams**2


@flops.register
def _(parametrization: Permutations, num_channels: int) -> float:
    return convex_combination_flops(num_channels, parametrization.num_logits, parametrization.num_streams)


@flops.register
def _(parametrization: Kronecker, num_channels: int) -> float:
    """Add to the factors' counts one product for each entry of each partial Kronecker product from the second on."""
    sizes = accumulate((part.num_streams for part in parametrization.parts), mul)
    products = sum(size**2 for index, size in enumerate(sizes) if index > 0)
    return sum(flops(part, num_channels) for part in parametrization.parts) + num_channels * products


@flops.register
def _(parametrization: Average, num_channels: int) -> float:
    terms = parametrization.num_terms * flops(parametrization.part, num_channels)
    return terms + convex_combination_flops(num_channels, parametrization.num_terms, parametrization.num_streams)


@flops.register
def _(parametrization: Transportation, num_channels: int) -> float:
    """Eleven for each free entry: a sigmoid (3), the interval (4), the entry (2), what is lacked afterwards (2)."""
    return 11 * num_channels * parametrization.num_logits


@flops.register(Identity)
@flops.register(Unconstrained)
def _(parametrization: Parametrization, num_channels: int) -> float:
    return 0.0


def convex_combination_flops(num_channels: int, num_terms: int, num_streams: int) -> float:
    """The paper's count for `num_terms` matrices: three for each weight's softmax, two for each product and sum."""
    return num_channels * (3 * num_terms + 2 * num_streams**2 * num_terms)
