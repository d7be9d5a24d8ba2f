r"""Multiply-adds of a map or a layer, forward and backward: what times over many sizes are compared with.

Leading terms, as the C++ kernels compute: backward makes the matrix again. A softmax, a hyperbolic tangent or a step of
the transportation counts as one for each entry, so ratios of two methods mean nothing; those of two sizes do.
d = num_streams, s = expressivity, n = d * s, S = iterations, c = channels, p = logits, k = 2d + p
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

PRODUCT_OF_GO = "kronecker of two go"
"""The way to many streams: the Kronecker product of two go-mHC matrices."""
FACTORS = {16: (4, 4), 32: (4, 8), 64: (8, 8)}
"""Number of streams -> numbers of streams of the two factors."""
NUM_ITERATIONS = 20
"""Number of Sinkhorn iterations (S)."""


class Count(NamedTuple):
    """Multiply-adds of a matrix."""

    formula: str
    of: Callable[[int, int], int]
    """(d, s) -> number."""


def _product_of_go(d: int, s: int) -> int:
    one, two = FACTORS[d]
    return 4 * (one**3 + two**3) * s**3 + 3 * d * d


ENTRIES = Count("d²", lambda d, _: d * d)
"""Count of methods that do the same work for each entry."""
COUNTS = {
    "go": Count("4 n³", lambda d, s: 4 * (d * s) ** 3),
    "linalg.solve": Count("4 n³", lambda d, s: 4 * (d * s) ** 3),
    PRODUCT_OF_GO: Count("4 (n₁³ + n₂³) + 3 d²", _product_of_go),
    "go-unitary": Count("16 n³", lambda d, s: 16 * (d * s) ** 3),
    "average": Count("8 d³", lambda d, _: 8 * d**3),
    "orthogonal": Count("4 d³", lambda d, _: 4 * d**3),
    "spectral-sphere": Count("13 d³", lambda d, _: 13 * d**3),
    "projection": Count("d³ a step", lambda d, _: d**3),
    **dict.fromkeys(
        ("sinkhorn", "sinkhorn-linear", "sinkhorn-v4"), Count("8 S d²", lambda d, _: 8 * NUM_ITERATIONS * d * d)
    ),
}
"""Method -> its count; for all other methods, `ENTRIES`."""


def map_operations(method: str, d: int, s: int) -> int:
    """Multiply-adds of one matrix, forward and backward."""
    return COUNTS.get(method, ENTRIES).of(d, s)


def layer_operations(method: str, d: int, s: int, num_logits: int, num_channels: int) -> int:
    """Multiply-adds of one token: three products with W, reading, mixing and writing three times, and the map."""
    read_and_write = 3 * num_channels * d * (2 * d + num_logits + d + 2)
    return read_and_write + (0 if method == "identity" else map_operations(method, d, s))
