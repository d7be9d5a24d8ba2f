"""Every compiled map computes what its plain version does, at any logits, size and batch, and torch knows it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from random_logits import SCALES, cotangent_like, extreme_logits, random_logits
from torch.autograd import forward_ad
from variants import ALL, each

import gomhc
from gomhc import (
    Average,
    BoundedOffDiagonal,
    Circulant,
    Kronecker,
    LinearSinkhorn,
    Orthogonal,
    Orthostochastic,
    Permutations,
    PolytopeProjection,
    Promise,
    RowStochastic,
    Sinkhorn,
    SinkhornV4,
    SpectralSphere,
    Transportation,
    Unistochastic,
    kernels,
)
from gomhc.birkhoff.measures import marginal_error
from gomhc.kernels import forms, ops
from gomhc.kernels.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="the library is not built: there was no C++ compiler")

EPS = torch.finfo(torch.float32).eps
GO = Orthostochastic
NESTED = [
    Kronecker(num_streams=8, factors=(GO(num_streams=4), Sinkhorn(num_streams=2))),
    Kronecker(num_streams=12, factors=(2, Average(num_streams=3, term="go-unitary:expressivity=1"), 2)),
    Average(num_streams=6, term=Kronecker(num_streams=6, factors=(Transportation(num_streams=3), 2))),
    Average(num_streams=3, num_terms=1, term=LinearSinkhorn(num_streams=3)),
    Kronecker(
        num_streams=8, factors=(PolytopeProjection(num_streams=2), Orthogonal(num_streams=4, rotation="quaternions"))
    ),
    Average(
        num_streams=6,
        term=Kronecker(num_streams=6, factors=(SpectralSphere(num_streams=3), RowStochastic(num_streams=2))),
    ),
    Kronecker(num_streams=6, factors=(Circulant(num_streams=3), BoundedOffDiagonal(num_streams=2))),
    Kronecker(num_streams=6, factors=(GO(num_streams=3, rotation="householder"), GO(num_streams=2, rotation="givens"))),
]
PRODUCTS = ("householder", "givens")
"""Rotations that are products of simple ones."""
RIVALS = (RowStochastic, Circulant, BoundedOffDiagonal, Orthogonal, SpectralSphere, PolytopeProjection)
SIZES = [
    GO(num_streams=5, expressivity=3),
    GO(num_streams=5, layout="square"),
    GO(num_streams=33, expressivity=2),
    *(
        GO(num_streams=d, expressivity=s, rotation=rotation)
        for d, s in ((1, 3), (4, 1), (8, 1), (8, 2), (3, 3), (5, 3), (9, 3))
        for rotation in PRODUCTS
    ),
    Unistochastic(num_streams=5),
    Permutations(num_streams=5),
    Permutations(num_streams=6),
    *(cls(num_streams=d) for d in (8, 9) for cls in (Sinkhorn, LinearSinkhorn, SinkhornV4, Transportation, *RIVALS)),
    *(cls(num_streams=33) for cls in RIVALS),
    Sinkhorn(num_streams=33, num_iterations=3),
    Kronecker(num_streams=64, factors=(GO(num_streams=8), GO(num_streams=8))),
]
COMPILED = [mixing for mixing in (*ALL, *NESTED, *SIZES) if mixing.kernel is not None]
LEARNED = [mixing for mixing in COMPILED if mixing.num_logits > 0]
PROBES = [mixing for mixing in LEARNED if mixing.num_streams in (3, 4, 8) and mixing.num_logits < 200]


def image_and_gradient(function, logits, cotangent):
    logits = logits.detach().requires_grad_()
    matrix = function(logits)
    return matrix.detach(), torch.autograd.grad(matrix, logits, cotangent.to(matrix.dtype))[0]


def largest_rotation(mixing):
    """Rows of the largest matrix that is computed with, which errors grow with."""
    parts = forms.parsed(mixing.kernel).parts
    return max(part.d * (part.number if forms.KINDS[part.kind].startswith("go") else 1) for part in parts)


def test_these_methods_are_compiled():
    compiled = {key for key, cls in gomhc.PARAMETRIZATIONS.items() if cls(num_streams=4).kernel is not None}
    options = {"go-square", "go-householder", "go-givens", "quaternions"}
    assert compiled >= {*forms.KINDS} - options
    parts = (part for mixing in COMPILED for part in forms.parsed(mixing.kernel).parts)
    assert {forms.KINDS[part.kind] for part in parts} == {*forms.KINDS}


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1e3])
@each(LEARNED)
def test_matrix_and_gradient_are_those_of_the_plain_version_in_float64(parametrization, scale):
    logits = scale * random_logits(parametrization, 37, dtype=torch.float32)
    if (
        getattr(parametrization, "layout", "") == "square"
    ):  # the plain version takes differences in the dtype of the logits
        logits = logits.round() if scale > 1 else logits
    cotangent = cotangent_like(parametrization(logits))
    matrix, gradient = image_and_gradient(parametrization, logits, cotangent)
    expected, exact = image_and_gradient(parametrization, logits.double(), cotangent)
    # Logits that differ by up to RANGE = 32 have differences that are rounded by so many eps.
    atol = 4 * (largest_rotation(parametrization) + 32) * EPS
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=atol)
    size = max(1.0, exact.abs().max().item())
    torch.testing.assert_close(gradient.double(), exact, rtol=0, atol=atol * size)


@each([mixing for mixing in LEARNED if mixing.promise is Promise.EXACT])
def test_sums_are_one_to_rounding_at_every_scale(parametrization):
    for scale in SCALES:
        matrix = parametrization(scale * random_logits(parametrization, 100, dtype=torch.float32))
        assert marginal_error(matrix.double()).max() <= 4 * largest_rotation(parametrization) * EPS
        assert matrix.min() >= 0


@each(LEARNED)
def test_extreme_logits_give_what_the_plain_version_gives(parametrization):
    logits = extreme_logits(parametrization, torch.float32)
    cotangent = cotangent_like(parametrization(logits))
    matrix, gradient = image_and_gradient(parametrization, logits, cotangent)
    expected, _ = image_and_gradient(parametrization, logits.double(), cotangent)
    assert gradient.isfinite().all()
    if (
        getattr(parametrization, "layout", "") != "square"
    ):  # differences of the largest numbers overflow in float32 alone
        torch.testing.assert_close(
            matrix.double(), expected, rtol=0, atol=4 * (largest_rotation(parametrization) + 32) * EPS
        )


@each(PROBES)
def test_nan_stays_in_its_matrix(parametrization):
    logits = random_logits(parametrization, 20, dtype=torch.float32)
    spoilt = logits.clone()
    spoilt[7, 1 % parametrization.num_logits] = torch.nan  # of a square, the first logit is on the diagonal
    matrix, expected = parametrization(spoilt), parametrization(logits)
    assert matrix[7].isnan().any()
    others = torch.arange(20) != 7
    assert torch.equal(matrix[others], expected[others])


def test_the_exponential_is_exact_to_a_few_roundings():
    """Softmax of two numbers, wherever the smaller weight is a normal number."""
    difference = torch.cat((torch.linspace(0, 87, 20001), torch.logspace(-30, 0, 500)))
    logits = torch.stack((torch.zeros_like(difference), -difference), dim=-1)
    weight = Permutations(num_streams=2)(logits)[:, 0, 1].double()
    expected = 1 / (1 + difference.double().exp())
    assert ((weight - expected) / expected).abs().max() <= 4 * EPS


def test_sines_and_cosines_are_exact_to_two_units_in_the_last_place_in_double(tmp_path):
    compiler = shutil.which("g++") or pytest.skip("needs a C++ compiler")
    native, source = Path(gomhc.__file__).parent / "kernels" / "native", Path(__file__).parent / "sines.cpp"
    flags = ("-O2", "-std=c++17", "-Wno-psabi", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-I", native, source, "-o", tmp_path / "sines.so"], check=True)
    generator = np.random.default_rng(0)
    steps = np.arange(-41721, 41722) * (np.pi / 2)  # close to where one of the two is zero
    wide = generator.uniform(-1, 1, 100_000) * 2.0 ** generator.uniform(-30, 16, 100_000)
    angles = np.concatenate((steps, wide, [0.0, 2.0**16, -(2.0**16)]))
    sines, cosines = np.empty_like(angles), np.empty_like(angles)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (angles, sines, cosines))
    ctypes.CDLL(str(tmp_path / "sines.so")).sines_and_cosines(*pointers, ctypes.c_int64(len(angles)))
    for found, function in ((sines, np.sin), (cosines, np.cos)):
        exact = function(angles.astype(np.longdouble))
        assert (np.abs(found - exact) / np.spacing(np.abs(found))).max() <= 2


def test_entries_of_a_turn_are_squares_of_sines_and_cosines_to_a_rounding_of_themselves():
    whole = torch.arange(-41721, 41722)
    angles = torch.cat((whole * (torch.pi / 2), torch.linspace(-7, 7, 10001), torch.logspace(-15, 4.8, 1000))).float()
    turn = GO(num_streams=2, expressivity=1, rotation="givens")
    matrix = turn(angles[:, None]).double()
    for column, function in ((0, torch.cos), (1, torch.sin)):
        expected = function(angles.double()).square()
        assert ((matrix[:, 0, column] - expected).abs() <= EPS * expected).all()


@pytest.mark.parametrize("rotation", PRODUCTS)
@pytest.mark.parametrize(("d", "s"), [(33, 2), (64, 1), (64, 3)])
def test_the_largest_products_of_rotations_are_those_of_the_plain_version(d, s, rotation):
    mixing = GO(num_streams=d, expressivity=s, rotation=rotation)
    logits = random_logits(mixing, 1, dtype=torch.float32)  # the plain version keeps hundreds of matrices for each
    cotangent = cotangent_like(mixing(logits))
    matrix, gradient = image_and_gradient(mixing, logits, cotangent)
    expected, exact = image_and_gradient(mixing, logits.double(), cotangent)
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=EPS)
    torch.testing.assert_close(gradient.double(), exact, rtol=0, atol=EPS * exact.abs().max().item())


@pytest.mark.parametrize("num_iterations", [1, 2, 20, 100])
@pytest.mark.parametrize("cls", [Sinkhorn, LinearSinkhorn, SinkhornV4])
def test_gradients_are_those_of_the_iterations_made(cls, num_iterations):
    mixing = cls(num_streams=4, num_iterations=num_iterations)
    logits = 2 * random_logits(mixing, 50, dtype=torch.float32)
    cotangent = cotangent_like(mixing(logits))
    _, gradient = image_and_gradient(mixing, logits, cotangent)
    _, expected = image_and_gradient(mixing, logits.double(), cotangent)
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=200 * EPS * expected.abs().max().item())


def test_the_hyperbolic_tangent_is_exact_to_a_few_roundings_of_itself():
    z = torch.cat((torch.linspace(-20, 20, 20001), torch.logspace(-30, 0, 500), torch.tensor([1e30, torch.inf])))
    entry = BoundedOffDiagonal(num_streams=2, bound=1.0)(torch.stack((z, -z), dim=-1))
    expected = z.double().tanh()
    assert ((entry[:, 0, 1].double() - expected).abs() <= 4 * EPS * expected.abs()).all()
    assert torch.equal(entry[:, 1, 0], -entry[:, 0, 1])


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1e3, 6e4])
@pytest.mark.parametrize("d", [2, 4, 8, 16])
def test_a_projection_cannot_be_improved(d, scale):
    """Variational inequality: <Z - B, P - B> <= 0 for every permutation P, those that are best for Z - B among them."""
    optimize = pytest.importorskip("scipy.optimize")
    mixing = PolytopeProjection(num_streams=d)
    logits = scale * random_logits(mixing, 60, dtype=torch.float32)
    matrix = mixing(logits).double()
    normal = logits.double().clamp(-(2.0**16), 2.0**16).reshape(-1, d, d) - matrix
    for towards, point in zip(normal, matrix, strict=True):
        best = towards[optimize.linear_sum_assignment(towards, maximize=True)].sum()
        assert best - (towards * point).sum() <= 8 * d * d * EPS * max(1.0, scale)


def test_rows_and_columns_of_zeros_are_left_as_they_are():
    mixing = LinearSinkhorn(num_streams=3)
    logits = torch.tensor([[0.0, 0, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 3, 4, 0, 5, 6], [0] * 9])
    cotangent = cotangent_like(mixing(logits))
    found, expected = (image_and_gradient(mixing, z, cotangent) for z in (logits, logits.double()))
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-4, atol=1e-6)


# Batches
# ----------------------------------------------------------------------------------------------------------------------


@each(PROBES)
def test_a_matrix_and_its_gradient_do_not_depend_on_the_batch(parametrization):
    """Each alone is the oracle of all of them, among neighbours of every scale, at any place and on any threads."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1e-3, 1.0, 4.0, 30.0, 1e2, 1e3, 1e5])
    logits = (scales[:, None, None] * random_logits(parametrization, 7, 5, dtype=torch.float32)).flatten(0, 1)
    cotangent = torch.randn(35, parametrization.num_streams, parametrization.num_streams, generator=generator)
    alone = [image_and_gradient(parametrization, z[None], c[None]) for z, c in zip(logits, cotangent, strict=True)]
    expected = [torch.cat(parts) for parts in zip(*alone, strict=True)]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            order = torch.randperm(35, generator=generator).repeat(1 + 20 * (threads > 1))
            for count in (2, 16, 17, 35, len(order)):
                chosen = order[:count]
                for found, oracle in zip(
                    image_and_gradient(parametrization, logits[chosen], cotangent[chosen]), expected, strict=True
                ):
                    assert torch.equal(found, oracle[chosen])
    finally:
        torch.set_num_threads(before)


@each(NESTED + PROBES[:8])
@pytest.mark.parametrize("batch", [(), (1,), (3, 0), (2, 3)])
def test_any_batch(parametrization, batch):
    logits = random_logits(parametrization, *batch, dtype=torch.float32).requires_grad_()
    matrix = parametrization(logits)
    assert matrix.shape == (*batch, parametrization.num_streams, parametrization.num_streams)
    torch.testing.assert_close(matrix.double(), parametrization(logits.double()), rtol=0, atol=1e-5)
    assert torch.autograd.grad(matrix, logits, torch.ones_like(matrix))[0].shape == logits.shape


@each(PROBES)
def test_strides_signs_and_zeros_that_torch_keeps_beside_the_memory_are_seen(parametrization):
    logits = random_logits(parametrization, 6, dtype=torch.float32)
    expected = parametrization(logits)
    assert torch.equal(parametrization(logits.T.contiguous().T), expected)
    assert torch.equal(parametrization(torch.stack((logits, logits), -1)[..., 0]), expected)
    negated = torch.complex(torch.zeros_like(logits), -logits).conj().imag
    assert negated.is_neg()
    assert torch.equal(parametrization(negated), expected)
    zeros = torch._efficientzerotensor(logits.shape)
    assert torch.equal(parametrization(zeros), parametrization(torch.zeros_like(logits)))


@each(PROBES)
def test_half_precision_is_computed_in_float32_and_rounded_once(parametrization):
    for dtype in (torch.bfloat16, torch.float16):
        logits = random_logits(parametrization, 6, dtype=dtype)
        assert torch.equal(parametrization(logits), parametrization(logits.float()).to(dtype))


# What torch does to functions
# ----------------------------------------------------------------------------------------------------------------------


@each(PROBES)
def test_second_derivatives_are_those_of_the_plain_version(parametrization):
    logits, direction = (random_logits(parametrization, 2, 3, dtype=torch.float32) for _ in range(2))
    cotangent = cotangent_like(parametrization(logits))

    def second(z):
        z = z.detach().requires_grad_()
        (first,) = torch.autograd.grad(parametrization(z), z, cotangent.to(z.dtype), create_graph=True)
        if not first.requires_grad:  # linear in pieces
            return torch.zeros_like(z)
        return torch.autograd.grad(first, z, direction.to(z.dtype))[0]

    exact = second(logits.double())
    size = max(1.0, exact.abs().max().item())
    torch.testing.assert_close(second(logits).double(), exact, rtol=0, atol=1e-4 * size)


@each(PROBES)
def test_tangents_are_not_lost(parametrization):
    logits, tangent = random_logits(parametrization, 2, 4, dtype=torch.float32)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(parametrization(forward_ad.make_dual(logits, tangent))).tangent
    expected = torch.func.jvp(parametrization, (logits.double(),), (tangent.double(),))[1]
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-4)


@each([mixing for mixing in LEARNED if mixing.num_streams == 4])
def test_torch_finds_nothing_wrong_with_the_operators(parametrization):
    logits = random_logits(parametrization, 5, dtype=torch.float32).requires_grad_()
    torch.library.opcheck(ops.mixing, (logits, parametrization.kernel))
    torch.library.opcheck(ops.mixing_backward, (logits.detach(), torch.randn(5, 4, 4), parametrization.kernel))


def test_a_graph_without_the_mixing_says_where_second_derivatives_are():
    logits = torch.randn(2, 9, requires_grad=True)
    matrix = ops.mixing(logits, "sinkhorn:3:7:0.125")
    with pytest.raises(RuntimeError, match="call the mixing itself"):
        torch.autograd.grad(matrix.square().sum(), logits, create_graph=True)


# What is left to torch
# ----------------------------------------------------------------------------------------------------------------------


def test_what_is_too_large_or_has_no_kernel_is_left_to_torch():
    class Own(Transportation):
        """With an equation of its own."""

        def matrix(self, logits):
            return super().matrix(-logits)

    cases = [
        GO(num_streams=65, expressivity=1),
        GO(num_streams=64, expressivity=4),
        GO(num_streams=4, rotation="exponential"),
        GO(num_streams=4, rotation="givens", layout="square"),
        Kronecker(num_streams=8, factors=(2, gomhc.Unconstrained(num_streams=4))),
        Kronecker(num_streams=65, factors=(GO(num_streams=13), GO(num_streams=5))),
        Average(num_streams=4, num_terms=64),
        Own(num_streams=3),
    ]
    for mixing in cases:
        assert mixing.kernel is None
        assert mixing(torch.zeros(2, mixing.num_logits)).shape == (2, mixing.num_streams, mixing.num_streams)
    logits = torch.randn(5, 4)
    assert torch.equal(Own(num_streams=3)(logits), Transportation(num_streams=3).matrix(-logits))


def test_a_method_from_outside_needs_no_kernel():
    @dataclass(frozen=True, kw_only=True)
    class Uniform(gomhc.Parametrization):
        key: ClassVar[str] = "uniform-of-test"
        num_logits: ClassVar[int] = 0

        def matrix(self, logits):
            return logits.new_full((*logits.shape[:-1], self.num_streams, self.num_streams), 1 / self.num_streams)

    mixing = Uniform(num_streams=2)
    assert mixing.kernel is None
    assert torch.equal(mixing(torch.empty(3, 0)), torch.full((3, 2, 2), 0.5))
    assert Kronecker(num_streams=4, factors=(mixing, mixing)).kernel is None


@each(COMPILED)
def test_a_form_is_what_its_mixing_says(parametrization):
    form = forms.parsed(parametrization.kernel)
    assert (form.num_streams, form.num_logits) == (parametrization.num_streams, parametrization.num_logits)


@pytest.mark.parametrize("backend", ["batched", "plain"])
def test_a_forced_version_leaves_c_alone(monkeypatch, backend):
    monkeypatch.setattr(ops, "call", None)
    with kernels.use(backend):
        for mixing in PROBES:
            mixing(random_logits(mixing, 2, dtype=torch.float32))
