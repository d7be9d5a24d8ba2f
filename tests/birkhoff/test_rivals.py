"""Each rival is what its equation says, by an oracle that shares no code with it."""

from __future__ import annotations

import numpy
import pytest
import torch
from random_logits import random_logits
from scipy.optimize import linear_sum_assignment, minimize
from scipy.spatial.transform import Rotation

import gomhc
from gomhc import BoundedOffDiagonal, Circulant, Orthogonal, PolytopeProjection, RowStochastic, SpectralSphere


def test_circulant_is_a_weighted_sum_of_shifts():
    logits = random_logits(Circulant(num_streams=5), 3)
    x = torch.randn(5, 7, dtype=torch.float64)
    weights = logits.softmax(-1)
    shifted = [sum(w[k] * x.roll(k, dims=0) for k in range(5)) for w in weights]
    torch.testing.assert_close(Circulant(num_streams=5)(logits) @ x, torch.stack(shifted))


def test_circulant_matrices_commute():
    a, b = Circulant(num_streams=4)(random_logits(Circulant(num_streams=4), 2))
    torch.testing.assert_close(a @ b, b @ a)


def test_rows_are_distributions_and_columns_are_anything():
    matrix = RowStochastic(num_streams=4)(torch.tensor([[9.0, 0, 0, 0]] * 4).flatten())
    torch.testing.assert_close(matrix.sum(-1), torch.ones(4))
    assert matrix.sum(-2)[0] > 3.9


def test_quaternions_rotate_as_scipy_says():
    """With a = b the first stream is fixed, and the other three turn as vectors of space do."""
    half = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = half - torch.tensor([1.0, 0, 0, 0])
    matrix = Orthogonal(num_streams=4, rotation="quaternions")(torch.cat((logits, logits)))
    w, x, y, z = half.tolist()
    expected = numpy.eye(4)
    expected[1:, 1:] = Rotation.from_quat([x, y, z, w]).as_matrix()
    numpy.testing.assert_allclose(matrix.numpy(), expected, atol=1e-12)


def test_quaternions_reach_any_rotation_of_four_streams():
    target, _ = torch.linalg.qr(torch.randn(5, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    target[..., 0] *= torch.linalg.det(target)[:, None].sign()
    for rotation in ("cayley", "quaternions"):
        assert Orthogonal(num_streams=4, rotation=rotation).fit(target).distance.max() < 1e-6


def test_quaternions_are_for_four_streams():
    with pytest.raises(ValueError, match="quaternions need num_streams=4, got 3; use rotation=cayley"):
        Orthogonal(num_streams=3, rotation="quaternions")


def test_spectral_sphere_has_the_singular_values_that_its_logits_say():
    mixing = SpectralSphere(num_streams=4)
    logits = random_logits(mixing, 6)
    values = numpy.linalg.svd(mixing(logits).numpy(), compute_uv=False)
    expected = torch.cat((logits[:, :3].tanh().abs(), torch.ones(6, 1)), dim=-1).sort(descending=True).values
    numpy.testing.assert_allclose(values, expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("bound", [0.1, 2.0])
def test_off_diagonals_are_bounded_and_the_diagonal_is_one(bound):
    mixing = BoundedOffDiagonal(num_streams=4, bound=bound)
    matrix = mixing(100 * random_logits(mixing, 50))
    assert torch.equal(matrix.diagonal(dim1=-2, dim2=-1), torch.ones(50, 4, dtype=torch.float64))
    off = (matrix - torch.eye(4)).abs()
    assert off.sum(-1).max() == pytest.approx(bound)
    assert off.sum(-2).max() <= bound * (1 + 1e-12)
    with pytest.raises(ValueError, match="bound must be a finite number, above 0; got 0"):
        BoundedOffDiagonal(num_streams=4, bound=0)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_projection_is_the_closest_doubly_stochastic_matrix(scale):
    """SLSQP, a general solver for constrained problems, finds the same."""
    mixing = PolytopeProjection(num_streams=3)
    for z in scale * random_logits(mixing, 5):
        target = z.numpy()
        sums = [  # the last column sum follows from the others
            {"type": "eq", "fun": lambda x: x.reshape(3, 3).sum(1) - 1},
            {"type": "eq", "fun": lambda x: x.reshape(3, 3).sum(0)[:2] - 1},
        ]
        found = minimize(
            lambda x, target=target: ((x - target) ** 2).sum(),
            numpy.full(9, 1 / 3),
            jac=lambda x, target=target: 2 * (x - target),
            bounds=[(0, None)] * 9,
            constraints=sums,
            options={"ftol": 1e-14, "maxiter": 500},
        )
        numpy.testing.assert_allclose(mixing(z).flatten().numpy(), found.x, atol=1e-6)


@pytest.mark.parametrize("num_streams", [2, 4, 8])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e4])
def test_projection_is_optimal(num_streams, scale):
    """No permutation matrix lies nearer: <Z - B, P - B> <= 0 for the P that has the most, by the Hungarian method."""
    mixing = PolytopeProjection(num_streams=num_streams)
    logits = scale * random_logits(mixing, 30)
    for z, matrix in zip(logits.unflatten(-1, (num_streams, num_streams)).numpy(), mixing(logits).numpy(), strict=True):
        row, column = linear_sum_assignment(z - matrix, maximize=True)
        assert (z - matrix)[row, column].sum() - ((z - matrix) * matrix).sum() < 1e-9 * max(1, scale)


def test_projection_leaves_a_doubly_stochastic_matrix_alone(generator):
    matrix = gomhc.birkhoff.SAMPLERS["dirichlet-permutations"](4, 20, generator)
    torch.testing.assert_close(PolytopeProjection(num_streams=4)(matrix.flatten(-2)), matrix, rtol=0, atol=1e-14)


def test_projection_keeps_nothing_of_its_iterations_for_backward():
    mixing = PolytopeProjection(num_streams=4)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda x: x):
        mixing(random_logits(mixing, 10).requires_grad_())
    assert sum(sizes) < 40 * 10 * 16
