r"""The region where eigenvalues of a stochastic matrix can lie, and how much of it given eigenvalues fill.

The Karpelevič region of d is bounded by arcs between neighbouring roots of unity of order at most d. For neighbours
a/b < a'/b' in the Farey sequence of order d the arc is (Ito 1997; q the smaller, r the larger of b and b')

    x^r (x^q - (1 - t))^m = t^m x^{q m},    m = floor(d / q),    0 <= t <= 1

Doubly stochastic matrices keep inside it. For d <= 3 the region is the union of the regular polygons with up to d
sides, as the paper draws it, and from d = 4 on it is a little larger. Eigenvalues of doubly stochastic matrices keep to
that union for d <= 4 (Perfect and Mirsky 1965; Levick, Pereira and Kribs 2014), and not for d = 5 (Mashreghi and Rivard
2007). d = num_streams
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

ComplexArray = NDArray[np.complexfloating]
POINTS_AN_ARC = 257
LARGEST = 12
"""The most streams whose arcs are computed: beyond, the roots of the equation lie too close together for float64."""


@cache
def karpelevic_boundary(num_streams: int) -> ComplexArray:
    """The boundary in the upper half plane, from 1 to -1, as a polyline of complex numbers."""
    if num_streams > LARGEST:
        raise ValueError(f"the boundary is computed for at most {LARGEST} streams, got {num_streams}")
    halves = sorted({Fraction(a, b) for b in range(1, num_streams + 1) for a in range(b + 1) if 2 * a <= b})
    if num_streams == 1:
        return np.ones(1, dtype=complex)
    return np.concatenate([_arc(num_streams, low, high) for low, high in pairwise(halves)])


def contains(points: ArrayLike, num_streams: int, tolerance: float = 1e-9) -> NDArray[np.bool_]:
    """Whether each point lies in the region, which is star-shaped around zero: one radius bounds each direction."""
    points = np.asarray(points, dtype=complex)
    if num_streams <= 2:
        real = (np.abs(points.imag) <= tolerance) & (np.abs(points.real) <= 1 + tolerance)
        return real if num_streams == 2 else np.abs(points - 1) <= tolerance
    boundary = karpelevic_boundary(num_streams)
    angle = np.abs(np.angle(points))
    radius = np.interp(angle, np.angle(boundary), np.abs(boundary))
    on_axis = (np.abs(points.imag) <= tolerance) & (np.abs(points.real) <= 1 + tolerance)
    return (np.abs(points) <= radius + tolerance) | on_axis


def polygon_excess(points: ArrayLike, num_streams: int) -> NDArray[np.floating]:
    """By how much the modulus of points exceeds that of the union of regular polygons with 3 to d sides; reals: 0."""
    points = np.asarray(points, dtype=complex)
    angle = np.angle(points)
    radius = np.where(np.abs(points.imag) <= 1e-9, 1.0, 0.0)
    for sides in range(3, num_streams + 1):
        away = angle % (2 * np.pi / sides) - np.pi / sides  # from the middle of the nearest side
        radius = np.maximum(radius, np.cos(np.pi / sides) / np.cos(away))
    return np.maximum(np.abs(points) - radius, 0.0)


def filled_share(eigenvalues: ArrayLike, num_streams: int, num_cells: int = 101) -> float:
    """Share of the region that holds eigenvalues: of the square cells whose centre lies in it, those that are hit.

    The square from -1 - i to 1 + i has `num_cells` cells a side: an odd number, so that centres lie on the real axis,
    which is all of the region of two streams.
    """
    if num_streams == 1 or num_cells % 2 == 0:
        raise ValueError(f"expected at least two streams and odd num_cells, got {num_streams} and {num_cells}")
    edges = np.linspace(-1 - 1e-9, 1 + 1e-9, num_cells + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    inside = contains(centres[:, None] + 1j * centres[None, :], num_streams)
    points = np.asarray(eigenvalues, dtype=complex).ravel()
    hits, *_ = np.histogram2d(points.real, points.imag, bins=(edges, edges))
    return float((inside & (hits > 0)).sum() / inside.sum())


def _arc(num_streams: int, low: Fraction, high: Fraction) -> ComplexArray:
    """From exp(2 pi i low) to exp(2 pi i high)."""
    ends = np.exp(2j * np.pi * np.array([float(low), float(high)]))
    q, r = sorted((low.denominator, high.denominator))
    if q == 1:  # the first arc is a straight line
        return np.linspace(ends[0], ends[1], POINTS_AN_ARC)
    steps = np.linspace(0, 1, POINTS_AN_ARC)[1:-1]  # from the end of order q to that of order r
    if low.denominator != q:
        steps = steps[::-1]
    inner = [_boundary_root(num_streams, q, r, t, low, high) for t in steps]
    return np.array([ends[0], *inner, ends[1]])


def _boundary_root(num_streams: int, q: int, r: int, t: float, low: Fraction, high: Fraction) -> complex:
    """The outermost root of Ito's equation between the two directions."""
    m = num_streams // q
    power = np.zeros(q + 1)
    power[0], power[-1] = 1, -(1 - t)
    left = np.array([1.0])
    for _ in range(m):
        left = np.polymul(left, power)
    left = np.polymul(left, np.eye(r + 1)[0])
    right = t**m * np.eye(q * m + 1)[0]
    roots = np.roots(np.polysub(left, right))
    turns = np.abs(np.angle(roots)) / (2 * np.pi)
    between = roots[(turns >= float(low) - 1e-7) & (turns <= float(high) + 1e-7)]
    outermost = between[np.argmax(np.abs(between))]
    return complex(outermost.real, abs(outermost.imag))
