"""What mathematics says of the maps, and where the paper says otherwise."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from random_logits import random_logits, tolerance
from variants import EXACT, each

from gomhc import Average, Kronecker, Orthostochastic, Permutations, Unistochastic
from gomhc.birkhoff.karpelevic import contains
from gomhc.birkhoff.kronecker import kronecker_product
from gomhc.birkhoff.measures import marginal_error, spectrum
from gomhc.birkhoff.rotations import ROTATIONS
from gomhc.birkhoff.samplers import sinkhorn_uniform


@each([parametrization for parametrization in EXACT if 0 < parametrization.num_logits <= 64])
def test_any_numbers_at_all_give_a_doubly_stochastic_matrix(parametrization):
    """Zeros, ties, subnormals and numbers of very different size, not only Gaussian ones."""
    entries = st.floats(-1e4, 1e4, allow_nan=False)

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(arrays.arrays(np.float64, parametrization.num_logits, elements=entries))
    def check(values):
        logits = torch.from_numpy(values).requires_grad_()
        matrix = parametrization(logits)
        assert matrix.min() >= 0
        assert marginal_error(matrix) <= tolerance(parametrization, torch.float64)
        (gradient,) = torch.autograd.grad(matrix, logits, torch.randn_like(matrix))
        assert gradient.isfinite().all()

    check()


@pytest.mark.parametrize("cls", [Orthostochastic, Unistochastic])
def test_two_streams_are_covered_with_expressivity_one(cls):
    """s = 1, d = 2: [[a, 1 - a], [1 - a, a]] for every a in [0, 1], both ends included."""
    a = torch.linspace(0, 1, 101, dtype=torch.float64)
    targets = torch.stack((torch.stack((a, 1 - a), -1), torch.stack((1 - a, a), -1)), -2)
    found = cls(num_streams=2, expressivity=1).fit(targets)
    assert found.distance.max() < 1e-6
    assert found.logits.abs().max() < 10


def test_cayley_of_two_streams_is_a_rotation_by_twice_the_arc_tangent():
    angle = 2 * torch.tensor([0.3], dtype=torch.float64).atan()
    matrix = Orthostochastic(num_streams=2, expressivity=1)(torch.tensor([0.3], dtype=torch.float64))
    torch.testing.assert_close(matrix[0, 0], angle.cos().square()[0])
    torch.testing.assert_close(matrix[0, 1], angle.sin().square()[0])


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_every_map_gives_orthogonal_matrices(rotation):
    for size in (1, 2, 5, 8):
        logits = torch.randn(20, size * (size - 1) // 2, generator=torch.Generator().manual_seed(0)).double()
        q = ROTATIONS[rotation](logits, size)
        torch.testing.assert_close(q.mT @ q, torch.eye(size).double().expand(20, -1, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_every_map_reaches_what_cayley_reaches(rotation, generator):
    """Surjective up to signs: each finds random targets that two by two blocks can express."""
    targets = sinkhorn_uniform(3, 10, generator)
    assert Orthostochastic(num_streams=3, rotation=rotation).fit(targets).distance.max() < 1e-6


def test_exponential_of_a_plane_is_its_angle():
    matrix = Orthostochastic(num_streams=2, expressivity=1, rotation="exponential")(torch.tensor([0.3]).double())
    torch.testing.assert_close(matrix[0, 0], torch.tensor(0.3).double().cos().square(), rtol=1e-6, atol=0)


def test_unitary_matrices_with_real_logits_are_orthogonal_ones():
    """Without the symmetric imaginary part, the unitary map is the orthogonal one."""
    orthogonal, unitary = Orthostochastic(num_streams=3), Unistochastic(num_streams=3)
    logits = random_logits(orthogonal, 10)
    padded = torch.cat((logits, logits.new_zeros(10, unitary.num_logits - orthogonal.num_logits)), dim=-1)
    torch.testing.assert_close(unitary(padded), orthogonal(logits))


def test_unitary_map_agrees_with_complex_arithmetic():
    parametrization = Unistochastic(num_streams=3, expressivity=2)
    logits, n = random_logits(parametrization), 6
    a = torch.zeros(n, n, dtype=torch.complex128)
    row, column = torch.triu_indices(n, n, offset=1)
    a[row, column] = logits[:15].to(a.dtype)
    a = a - a.T
    row, column = torch.triu_indices(n, n)
    y = torch.zeros(n, n, dtype=torch.float64)
    y[row, column] = y[column, row] = logits[15:]
    a = a + 1j * y
    identity = torch.eye(n, dtype=torch.complex128)
    u = (identity - a) @ torch.linalg.inv(identity + a)
    blocks = u.abs().square().reshape(3, 2, 3, 2).sum((1, 3)) / 2
    torch.testing.assert_close(parametrization(logits), blocks)


def test_kronecker_spectra_are_the_products_of_the_factors_spectra():
    parametrization = Kronecker(num_streams=6, factors=(2, 3))
    logits = random_logits(parametrization, 10)
    two, three = Permutations(num_streams=2)(logits[:, :2]), Permutations(num_streams=3)(logits[:, 2:])
    products = (spectrum(two)[:, :, None] * spectrum(three)[:, None, :]).flatten(1)
    for found, expected in zip(spectrum(parametrization(logits)), products, strict=True):
        distance = (found[:, None] - expected[None, :]).abs()
        assert distance.min(0).values.max() < 1e-9
        assert distance.min(1).values.max() < 1e-9


def test_kronecker_factors_keep_their_order():
    a, b = torch.rand(2, 2), torch.rand(3, 3)
    assert torch.equal(kronecker_product(a, b), torch.kron(a, b))


def test_kronecker_products_of_three_by_three_leave_the_region_of_three():
    """App. B.3 says that they cannot. A 3-cycle (x) a transposition has the eigenvalue -exp(2 pi i / 3).

    The transposition of two streams is an element of B_3 too: it leaves the third where it is.
    """
    cycle = torch.eye(3, dtype=torch.float64)[[1, 2, 0]]
    transposition = torch.eye(3, dtype=torch.float64)[[1, 0, 2]]
    eigenvalues = spectrum(torch.kron(cycle, transposition))
    claimed_impossible = -np.exp(2j * np.pi / 3)
    assert (eigenvalues - claimed_impossible).abs().min() < 1e-12
    assert not contains(np.array([claimed_impossible]), 3)[0]
    # Sixth roots of unity: the product needs the region of six streams.
    assert contains(eigenvalues.numpy(), 6).all()


def test_kronecker_products_of_two_by_two_have_real_eigenvalues():
    parametrization = Kronecker(num_streams=8)
    assert spectrum(parametrization(random_logits(parametrization, 100))).imag.abs().max() < 1e-6


def test_average_of_orthostochastic_matrices_reaches_what_one_does_not(generator):
    targets = sinkhorn_uniform(3, 10, generator)
    one, two = Orthostochastic(num_streams=3, expressivity=1), Average(num_streams=3, num_terms=2)
    assert one.fit(targets).distance.median() > 0.02
    assert two.fit(targets).distance.max() < 1e-6


def test_products_of_doubly_stochastic_matrices_are_doubly_stochastic():
    parametrization = Orthostochastic(num_streams=4)
    product = torch.linalg.multi_dot(list(parametrization(random_logits(parametrization, 64))))
    assert marginal_error(product) < 64 * 4 * torch.finfo(torch.float64).eps
