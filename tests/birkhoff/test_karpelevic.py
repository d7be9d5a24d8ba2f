"""The Karpelevič region holds every eigenvalue of a stochastic matrix, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from random_logits import random_logits

from gomhc import Identity, Kronecker, Orthostochastic, Permutations
from gomhc.birkhoff.karpelevic import contains, filled_share, karpelevic_boundary
from gomhc.birkhoff.measures import spectrum
from gomhc.birkhoff.samplers import dirichlet_permutations
from gomhc.birkhoff.spectral_reach import spectral_reach


@pytest.mark.parametrize("d", range(2, 9))
def test_boundary_goes_from_one_to_minus_one_through_all_roots_of_unity(d):
    boundary = karpelevic_boundary(d)
    assert boundary[0] == pytest.approx(1)
    assert boundary[-1] == pytest.approx(-1)
    assert (boundary.imag >= -1e-9).all()
    assert np.diff(np.angle(boundary)).min() >= -1e-9
    assert np.abs(np.diff(boundary)).max() < 0.1
    roots = np.exp(2j * np.pi * np.array([a / b for b in range(1, d + 1) for a in range(b)]))
    assert contains(roots, d).all()
    assert not contains(1.001 * roots, d).any()


@pytest.mark.parametrize("d", range(2, 8))
def test_eigenvalues_of_sparse_stochastic_matrices_are_inside(d):
    """Extreme eigenvalues come from sparse matrices: two entries a row, those of Ito's arcs among them."""
    rng = np.random.default_rng(0)
    first, second = np.eye(d)[rng.integers(d, size=(2, 40_000, d))]
    weights = rng.uniform(size=(40_000, d, 1))
    matrices = weights * first + (1 - weights) * second
    eigenvalues = np.linalg.eigvals(matrices).ravel()
    assert contains(eigenvalues, d, tolerance=2e-4).all()


def test_region_of_three_is_a_triangle_and_a_segment():
    inside = np.array([0.0, -0.9, 0.2 + 0.4j, -0.49 + 0.8j])
    outside = np.array([-0.6 + 0.1j, 0.5 + 0.5j, 1j, -1.01])
    assert contains(inside, 3).all()
    assert not contains(outside, 3).any()
    assert contains(np.array([1j]), 4).all()


def test_region_of_four_is_a_little_larger_than_the_square_and_the_triangle():
    """What the paper's caption calls the spectrum is a union of polygons; Karpelevič's arc runs outside of it."""
    arc = karpelevic_boundary(4)
    arc = arc[(np.angle(arc) > np.pi / 2 + 0.05) & (np.angle(arc) < 2 * np.pi / 3 - 0.05)]
    in_square = np.abs(arc.real) + np.abs(arc.imag) <= 1
    in_triangle = (arc.real >= -0.5) & (arc.imag <= (1 - arc.real) / np.sqrt(3))
    assert not (in_square | in_triangle).any()


def test_filled_share_counts_cells():
    assert filled_share(np.linspace(-1, 1, 2001).astype(complex), 2) == 1
    assert filled_share(np.linspace(0, 1, 2001).astype(complex), 2) == pytest.approx(0.5, abs=0.01)
    rng = np.random.default_rng(0)
    square = rng.uniform(-1, 1, 10**6) + 1j * rng.uniform(-1, 1, 10**6)
    assert filled_share(square, 4) > 0.999
    assert filled_share(np.array([]), 4) == 0
    for streams, cells in ((1, 101), (4, 100)):
        with pytest.raises(ValueError, match="at least two streams and odd num_cells"):
            filled_share(square, streams, cells)


def test_region_is_refused_where_it_cannot_be_computed():
    boundary = karpelevic_boundary(12)
    assert np.abs(boundary).max() <= 1 + 1e-9
    assert np.diff(np.angle(boundary)).min() >= -1e-9
    with pytest.raises(ValueError, match="at most 12 streams, got 13"):
        karpelevic_boundary(13)


def test_spectral_reach_grows_with_expressivity_and_is_real_for_kronecker(generator):
    """Figs. 3 and 4 at a small size: eigenvalues that a search for random targets finds."""
    shares = {}
    for name, parametrization in {
        "krom": Kronecker(num_streams=4),
        "go-1": Orthostochastic(num_streams=3, expressivity=1),
        "go-2": Orthostochastic(num_streams=3, expressivity=2),
    }.items():
        found = spectral_reach(parametrization, 800, generator, num_steps=60).numpy()
        assert contains(found, parametrization.num_streams, tolerance=1e-6).all()
        shares[name] = filled_share(found, parametrization.num_streams, num_cells=31)
    assert shares["go-1"] < shares["go-2"] - 0.02
    assert shares["krom"] < 0.08
    assert spectral_reach(Identity(num_streams=3), 2, generator).real.min() == 1


def test_methods_fill_the_region_and_kronecker_only_its_axis():
    """KromHC fills only the real axis. Random logits, which hit less than what can be reached."""
    shares = {}
    for name, parametrization in {
        "krom": Kronecker(num_streams=4),
        "go-1": Orthostochastic(num_streams=4, expressivity=1),
        "lite": Permutations(num_streams=4),
    }.items():
        eigenvalues = spectrum(parametrization(3 * random_logits(parametrization, 30_000))).numpy()
        assert contains(eigenvalues, 4, tolerance=1e-6).all()
        shares[name] = filled_share(eigenvalues, 4, num_cells=51)
    assert shares["krom"] < 0.05
    assert shares["go-1"] > 0.5
    assert shares["lite"] > 0.5


def test_doubly_stochastic_spectra_are_inside(generator):
    for d in (2, 3, 4, 5):
        eigenvalues = spectrum(dirichlet_permutations(d, 1000, generator)).numpy()
        assert contains(eigenvalues, d, tolerance=1e-9).all()
