"""The Triton kernels compute what the plain versions do, run here by Triton's interpreter, which needs no GPU.

The interpreter accepts what the compiler rejects, so the kernels are compiled as well, for a GPU that need not be here.
"""

from __future__ import annotations

import importlib
import os
import sys

import pytest
import torch

import gomhc
from gomhc.birkhoff import linear_sinkhorn
from gomhc.kernels import plain_streams
from gomhc.kernels.plain_map import orthostochastic

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("triton was imported before TRITON_INTERPRET=1 was set", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
maps, sinkhorn, permutations, streams, product = (
    importlib.import_module(f"gomhc.kernels.triton.triton_{name}")
    for name in ("map", "sinkhorn", "permutations", "streams", "product")
)

EPS = torch.finfo(torch.float32).eps
MAPS = [(1, 1), (1, 3), (2, 1), (3, 1), (3, 3), (4, 2), (5, 2), (5, 3)]
"""(d, s)"""
STREAMS = [(1, 1, 5, 0), (7, 3, 16, 3), (33, 5, 5, 10), (3, 5, 384, 45), (2, 16, 384, 1), (7, 1, 384, 0)]
"""(N, d, c, p): one, or several and a part of one, of the blocks that channels are handled in"""
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
OFFSET, EPSILON = 0.25, 1e-3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def logits_of(num_matrices, d, s, scale=1.0):
    n = d * s
    return scale * torch.randn(num_matrices, n * (n - 1) // 2)


def assert_rounded(actual, expected, dtype=torch.float32):
    """Equal to what float64 gives, to one rounding to `dtype` and a few of float32 at the size of the sums."""
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    atol = 16 * EPS * max(1.0, expected.abs().max().item()) if expected.numel() else 0.0
    torch.testing.assert_close(actual.double(), expected.double(), rtol=torch.finfo(dtype).eps, atol=atol)


def leaves(*tensors):
    """Float64 copies whose gradients the oracle takes."""
    return [tensor.double().requires_grad_() for tensor in tensors]


def plain_read(x, projection, scale, bias):
    """What `read_forward` returns, and the logits."""
    d = x.shape[1]
    inverse_rms = torch.rsqrt(x.square().mean((1, 2)) + EPSILON)
    logits = projection * inverse_rms[:, None] * scale + bias
    read, write, mix_logits = logits.split([d, d, logits.shape[1] - 2 * d], dim=1)
    return plain_streams.read(x, read.sigmoid() + OFFSET), 2 * write.sigmoid(), mix_logits, inverse_rms, logits


def read_inputs(num_tokens, d, c, p, dtype):
    k = 2 * d + p
    return (3 * torch.randn(num_tokens, d, c)).to(dtype), torch.randn(num_tokens, k), torch.randn(k), torch.randn(k)


def write_inputs(num_tokens, d, c, dtype):
    mix, write = torch.randn(num_tokens, d, d), torch.randn(num_tokens, d)
    return torch.randn(num_tokens, d, c).to(dtype), mix, write, torch.randn(num_tokens, c).to(dtype)


@pytest.mark.parametrize("num_matrices", [1, 9])
@pytest.mark.parametrize(("d", "s"), MAPS)
def test_map_and_its_gradient_are_those_of_the_plain_version(d, s, num_matrices):
    logits = logits_of(num_matrices, d, s)
    cotangent = torch.randn(num_matrices, d, d)
    (leaf,) = leaves(logits)
    matrix = orthostochastic(leaf, d, s)
    (gradient,) = torch.autograd.grad(matrix, leaf, cotangent.double())
    assert_rounded(maps.orthostochastic_forward(logits, d, s), matrix)
    assert_rounded(maps.orthostochastic_backward(logits, cotangent, d, s), gradient)


@pytest.mark.parametrize(("d", "s"), [(16, 2), (4, 8)])
def test_map_and_its_gradient_are_those_of_the_plain_version_at_the_largest_size(d, s):
    test_map_and_its_gradient_are_those_of_the_plain_version(d, s, num_matrices=1)


@pytest.mark.parametrize("scale", [1e-3, 1e-1, 1.0, 1e2, 1e4])
@pytest.mark.parametrize(("d", "s"), MAPS)
def test_rows_and_columns_sum_to_one_at_every_scale_of_logits(d, s, scale):
    matrix = maps.orthostochastic_forward(logits_of(9, d, s, scale), d, s).double()
    assert (matrix >= 0).all()
    for axis in (1, 2):
        assert (matrix.sum(axis) - 1).abs().max() <= d * s * EPS


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e5, 1e7, 1e30])
@pytest.mark.parametrize(("d", "s"), [(3, 1), (5, 1), (4, 2)])
def test_map_and_its_gradient_are_exact_where_many_logits_are_zero_and_beyond_saturation(d, s, scale):
    logits, cotangent = logits_of(17, d, s), torch.randn(17, d, d)
    logits = torch.where(torch.rand_like(logits) < 0.5, scale * logits.sign(), 0)
    (leaf,) = leaves(logits)
    matrix = orthostochastic(leaf, d, s)
    (gradient,) = torch.autograd.grad(matrix, leaf, cotangent.double())
    assert_rounded(maps.orthostochastic_forward(logits, d, s), matrix)
    assert_rounded(maps.orthostochastic_backward(logits, cotangent, d, s), gradient)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "i", "j"), [(1, 5, 3), (17, 100, 70), (33, 64, 64)])
def test_products_are_those_of_matrices(num_rows, i, j, dtype):
    x, weight, y = torch.randn(2 * num_rows, i)[::2].to(dtype), torch.randn(j, i), torch.randn(num_rows, j)
    assert_rounded(product.project(x, weight), x.double() @ weight.double().T)
    x = x.contiguous()
    expected = x.double() + y.double() @ weight.double()
    product.add_back_(x, y, weight)
    assert_rounded(x, expected, dtype)


@pytest.mark.parametrize(("d", "s"), MAPS)
def test_rows_and_columns_sum_to_one_where_logits_of_all_scales_meet(d, s):
    logits = logits_of(9, d, s)
    logits *= 10 ** torch.empty_like(logits).uniform_(-3, 4)
    matrix = maps.orthostochastic_forward(logits, d, s).double()
    for axis in (1, 2):
        assert (matrix.sum(axis) - 1).abs().max() <= d * s * EPS


@pytest.mark.parametrize("scale", [1e-3, 1e2, 1e4])
def test_gradient_of_the_map_is_that_of_the_plain_version_at_every_scale_of_logits(scale):
    logits, cotangent = logits_of(7, 4, 2, scale), torch.randn(7, 4, 4)
    (leaf,) = leaves(logits)
    (gradient,) = torch.autograd.grad(orthostochastic(leaf, 4, 2), leaf, cotangent.double())
    actual = maps.orthostochastic_backward(logits, cotangent, 4, 2).double()
    assert (actual - gradient).abs().max() <= 16 * EPS * gradient.abs().max()


def test_zero_logits_are_the_identity():
    assert torch.equal(maps.orthostochastic_forward(torch.zeros(7, 15), 3, 2), torch.eye(3).expand(7, 3, 3))


def test_nan_stays_in_its_own_matrix():
    logits = logits_of(7, 3, 2)
    healthy = maps.orthostochastic_forward(logits, 3, 2)
    logits[2, 4] = torch.nan
    matrix = maps.orthostochastic_forward(logits, 3, 2)
    others = torch.arange(7) != 2
    assert matrix[2].isnan().any()
    assert torch.equal(matrix[others], healthy[others])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "d", "c", "p"), STREAMS)
def test_read_is_that_of_the_plain_version(num_tokens, d, c, p, dtype):
    inputs = read_inputs(num_tokens, d, c, p, dtype)
    expected = plain_read(*(tensor.double() for tensor in inputs))
    actual = streams.read_forward(*inputs, OFFSET, EPSILON)
    for result, oracle, kind in zip(actual, expected[:4], (dtype, *[torch.float32] * 3), strict=True):
        assert_rounded(result, oracle, kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "d", "c", "p"), STREAMS)
def test_gradients_of_read_are_those_of_the_plain_version(num_tokens, d, c, p, dtype):
    inputs = read_inputs(num_tokens, d, c, p, dtype)
    cotangents = torch.randn(num_tokens, c).to(dtype), torch.randn(num_tokens, d), torch.randn(num_tokens, p)
    x, projection, scale, bias = leaves(*inputs)
    *results, inverse_rms, logits = plain_read(x, projection, scale, bias)
    doubles = [cotangent.double() for cotangent in cotangents]
    sources = (x, projection, logits, scale, bias)
    grad_x, grad_projection, grad_logits, grad_scale, grad_bias = torch.autograd.grad(results, sources, doubles)

    rms = inverse_rms.detach().float()
    actual = streams.read_backward(*cotangents, *inputs, rms, OFFSET)
    assert_rounded(actual[0], grad_x, dtype)
    assert_rounded(actual[1], grad_projection)
    assert_rounded(actual[2], grad_logits)
    assert_rounded((actual[2] * inputs[1] * rms[:, None]).sum(0), grad_scale)
    assert_rounded(actual[2].sum(0), grad_bias)


def test_logits_may_take_several_blocks(monkeypatch):
    monkeypatch.setattr(streams, "LOGIT_BLOCK", 4)
    test_read_is_that_of_the_plain_version(3, 3, 5, 10, torch.float32)
    test_gradients_of_read_are_those_of_the_plain_version(3, 3, 5, 10, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "d", "c", "p"), STREAMS)
def test_write_and_its_gradients_are_those_of_the_plain_version(num_tokens, d, c, p, dtype):
    inputs = write_inputs(num_tokens, d, c, dtype)
    cotangent = torch.randn(num_tokens, d, c).to(dtype)
    sources = leaves(*inputs)
    result = plain_streams.write(*sources)
    gradients = torch.autograd.grad(result, sources, cotangent.double())
    assert_rounded(streams.write_forward(*inputs), result, dtype)
    actual = streams.write_backward(cotangent, *inputs)
    for gradient, oracle, source in zip(actual, gradients, inputs, strict=True):
        assert_rounded(gradient, oracle, source.dtype)


def test_mix_is_applied_not_its_transpose():
    x, y = torch.tensor([[[1.0], [10.0]]]), torch.zeros(1, 1)
    mix, write = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), torch.ones(1, 2)
    assert streams.write_forward(x, mix, write, y).flatten().tolist() == [10.0, 0.0]


def test_tensors_need_not_be_contiguous():
    x, mix, write, y = write_inputs(3, 4, 8, torch.float32)
    x, mix, cotangent = x[:, :1].expand(3, 4, 8), mix.mT, torch.randn(3, 8, 4).mT
    dense = [tensor.contiguous() for tensor in (cotangent, x, mix, write, y)]
    assert torch.equal(streams.write_forward(x, mix, write, y), streams.write_forward(*dense[1:]))
    results = zip(streams.write_backward(cotangent, x, mix, write, y), streams.write_backward(*dense), strict=True)
    assert all(torch.equal(actual, expected) for actual, expected in results)


def test_empty_batches_give_empty_results():
    x, projection, *_ = inputs = read_inputs(0, 3, 5, 3, torch.bfloat16)
    branch_input, write, mix_logits, inverse_rms = results = streams.read_forward(*inputs, OFFSET, EPSILON)
    assert [tuple(result.shape) for result in results] == [(0, 5), (0, 3), (0, 3), (0,)]
    gradients = streams.read_backward(branch_input, write, mix_logits, *inputs, inverse_rms, OFFSET)
    assert [gradient.shape for gradient in gradients] == [x.shape, projection.shape, projection.shape]
    mix = maps.orthostochastic_forward(mix_logits, 3, 1)
    assert mix.shape == (0, 3, 3)
    assert maps.orthostochastic_backward(mix_logits, mix, 3, 1).shape == (0, 3)
    assert streams.write_forward(x, mix, write, branch_input).shape == x.shape
    gradients = streams.write_backward(x, x, mix, write, branch_input)
    assert [gradient.shape for gradient in gradients] == [x.shape, mix.shape, write.shape, branch_input.shape]


SINKHORN = {"log": gomhc.Sinkhorn, "linear": gomhc.LinearSinkhorn, "deepseek-v4": gomhc.SinkhornV4}
EPSILONS = {"log": 0.0, "linear": linear_sinkhorn.EPSILON, "deepseek-v4": 1e-6}


@pytest.mark.parametrize("num_iterations", [1, 3])
@pytest.mark.parametrize("d", [1, 3, 4])
@pytest.mark.parametrize("order", SINKHORN)
def test_sinkhorn_and_its_gradient_are_those_of_the_iterations_made(order, d, num_iterations):
    mixing = SINKHORN[order](num_streams=d, num_iterations=num_iterations)
    logits, cotangent = 3 * torch.randn(67, d * d), torch.randn(67, d, d)
    (leaf,) = leaves(logits)
    matrix = mixing.matrix(leaf)
    (gradient,) = torch.autograd.grad(matrix, leaf, cotangent.double())
    settings = (d, num_iterations, order, EPSILONS[order])
    assert_rounded(sinkhorn.sinkhorn_forward(logits, *settings), matrix)
    assert_rounded(sinkhorn.sinkhorn_backward(logits, cotangent, *settings), gradient)


@pytest.mark.parametrize("scale", [1e5, 1e10, 1e30, torch.inf])
@pytest.mark.parametrize("order", ["log", "deepseek-v4"])
def test_sinkhorn_ends_on_exact_sums_at_any_logits(order, scale):
    logits, cotangent = scale * torch.randn(33, 16), torch.randn(33, 4, 4)
    settings = (4, 20, order, EPSILONS[order])
    matrix = sinkhorn.sinkhorn_forward(logits, *settings).double()
    last = 1 if order == "log" else 2
    assert (matrix.sum(last) - 1).abs().max() <= 4 * EPSILONS[order] + 8 * EPS
    assert sinkhorn.sinkhorn_backward(logits, cotangent, *settings).isfinite().all()


@pytest.mark.parametrize("d", [1, 2, 4, 5])
def test_permutations_and_their_gradient_are_those_of_the_plain_version(d):
    mixing = gomhc.Permutations(num_streams=d)
    logits, cotangent = 3 * torch.randn(35, mixing.num_logits), torch.randn(35, d, d)
    (leaf,) = leaves(logits)
    matrix = mixing.matrix(leaf)
    (gradient,) = torch.autograd.grad(matrix, leaf, cotangent.double())
    assert_rounded(permutations.permutations_forward(logits, d), matrix)
    assert_rounded(permutations.permutations_backward(logits, cotangent, d), gradient)


@pytest.mark.parametrize("scale", [1e5, 1e10, 1e30, torch.inf])
@pytest.mark.parametrize(("d", "s"), [(3, 1), (4, 2), (5, 2)])
def test_sums_are_one_and_gradients_finite_at_the_largest_logits(d, s, scale):
    logits = logits_of(9, d, s, scale)
    matrix = maps.orthostochastic_forward(logits, d, s).double()
    for axis in (1, 2):
        assert (matrix.sum(axis) - 1).abs().max() <= d * s * EPS
    assert maps.orthostochastic_backward(logits, torch.randn(9, d, d), d, s).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "d", "c"), [(1, 1, 5), (7, 3, 16), (3, 5, 384)])
def test_coefficients_that_tokens_share_are_read_and_written_as_by_the_plain_version(num_tokens, d, c, dtype):
    x, mix, write, y = write_inputs(num_tokens, d, c, dtype)
    inputs, cotangent = (x, mix[0], write[0], y), torch.randn(num_tokens, d, c).to(dtype)
    sources = leaves(*inputs)
    result = plain_streams.write(*sources)
    assert_rounded(streams.write_forward(*inputs), result, dtype)
    gradients = torch.autograd.grad(result, sources, cotangent.double())
    for gradient, oracle, source in zip(streams.write_backward(cotangent, *inputs), gradients, inputs, strict=True):
        assert_rounded(gradient, oracle, source.dtype)

    source, weights = sources[0], sources[2]
    result = plain_streams.read(source, weights)
    assert_rounded(streams.read_shared_forward(x, write[0]), result, dtype)
    gradients = torch.autograd.grad(result, (source, weights), y.double())
    for gradient, oracle, kind in zip(
        streams.read_shared_backward(y, x, write[0]), gradients, (dtype, torch.float32), strict=True
    ):
        assert_rounded(gradient, oracle, kind)
