"""Fast versions compute what the plain ones do, for every shape, and torch knows them."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import forward_ad

import gomhc
from gomhc import HyperConnection, Orthostochastic, kernels
from gomhc.birkhoff.measures import marginal_error
from gomhc.kernels import batched, ops, plain_streams
from gomhc.kernels.forms import single
from gomhc.kernels.library import library
from gomhc.kernels.plain_map import orthostochastic as plain_map

EPS = torch.finfo(torch.float32).eps
FAST = [name for name in ("native", "batched") if name in kernels.available()]
needs_library = pytest.mark.skipif(library() is None, reason="the library is not built: there was no C++ compiler")


def random_logits(count, d, s, scale=1.0, seed=0):
    n = d * s
    return scale * torch.randn(count, n * (n - 1) // 2, generator=torch.Generator().manual_seed(seed))


def with_gradient(function, logits, cotangent):
    logits = logits.detach().requires_grad_()
    matrix = function(logits)
    return matrix.detach(), torch.autograd.grad(matrix, logits, cotangent)[0]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler to build the library with")
def test_the_library_is_built_where_there_is_a_compiler():
    assert library() is not None


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 3.0, 10.0, 1e2, 1e3, 1e4])
@pytest.mark.parametrize(("d", "s"), [(1, 1), (1, 2), (2, 1), (3, 1), (4, 1), (3, 2), (4, 2), (5, 2), (4, 3), (8, 2)])
def test_fast_maps_are_exact_and_equal_the_plain_one(d, s, scale, backend):
    logits = random_logits(203, d, s, scale)
    cotangent = torch.randn(203, d, d, generator=torch.Generator().manual_seed(1))
    with kernels.use(backend):
        matrix, gradient = with_gradient(lambda z: kernels.orthostochastic(z, d, s), logits, cotangent)
    expected, expected_gradient = with_gradient(lambda z: plain_map(z, d, s), logits.double(), cotangent.double())
    assert marginal_error(matrix.double()).max() <= 2 * d * s * EPS
    assert (matrix - expected).abs().max() <= 40 * EPS
    # A gradient is a difference of terms of the size of the cotangent: that is what rounding is relative to.
    atol = 10 * EPS * cotangent.abs().max().item()
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=atol)


def sparse_logits(count, d, s, scale, seed=0):
    """Half of them zero, the others of one modulus: where elimination without pivots loses most digits."""
    logits = random_logits(count, d, s, seed=seed)
    chosen = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return torch.where(chosen, scale * logits.sign(), 0)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("scale", [2.0, 4.4, 4.6, 30.0, 127.0, 129.0, 1e3, 1e4, 1e6, 1e7, 1e30])
@pytest.mark.parametrize(("d", "s"), [(2, 1), (5, 1), (3, 2), (4, 2), (3, 3), (8, 2)])
def test_fast_maps_are_exact_where_many_logits_are_zero(d, s, scale, backend):
    logits = sparse_logits(1000, d, s, scale)
    cotangent = torch.randn(1000, d, d, generator=torch.Generator().manual_seed(1))
    with kernels.use(backend):
        matrix, gradient = with_gradient(lambda z: kernels.orthostochastic(z, d, s), logits, cotangent)
    expected, expected_gradient = with_gradient(lambda z: plain_map(z, d, s), logits.double(), cotangent.double())
    assert marginal_error(matrix.double()).max() <= 4 * d * s * EPS
    assert (matrix - expected).abs().max() <= 40 * EPS
    atol = 20 * EPS * cotangent.abs().max().item()
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=atol)


@pytest.mark.parametrize("backend", kernels.available())
def test_larger_logits_count_as_the_largest_and_have_no_gradient(backend):
    logits = random_logits(20, 4, 2)
    logits[:, ::5] *= 1e9
    limit = kernels.plain_map.SATURATION
    with kernels.use(backend):
        cotangent = torch.randn(20, 4, 4)
        matrix, gradient = with_gradient(lambda z: kernels.orthostochastic(z, 4, 2), logits, cotangent)
        clamped, _ = with_gradient(lambda z: kernels.orthostochastic(z, 4, 2), logits.clamp(-limit, limit), cotangent)
    assert torch.equal(matrix, clamped)
    saturated = logits.abs() > limit
    assert saturated.any()
    assert (gradient[saturated] == 0).all()
    assert (gradient[~saturated] != 0).any()


@pytest.mark.parametrize("backend", FAST)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(d=st.integers(1, 32), s=st.integers(1, 4), count=st.integers(0, 70), seed=st.integers(0, 9))
def test_any_shape(backend, d, s, count, seed):
    """Odd batch sizes, sizes below the width of a vector, d s up to 64 and beyond what is compiled."""
    if d * s > 64:
        s = 1
    logits = random_logits(count, d, s, seed=seed)
    cotangent = torch.randn(count, d, d, generator=torch.Generator().manual_seed(seed))
    with kernels.use(backend):
        matrix, gradient = with_gradient(lambda z: kernels.orthostochastic(z, d, s), logits, cotangent)
    expected, expected_gradient = with_gradient(lambda z: plain_map(z, d, s), logits.double(), cotangent.double())
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=60 * EPS)
    atol = 20 * EPS * max([0, *cotangent.abs().flatten().tolist()])
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=atol)


@needs_library
def test_results_do_not_depend_on_the_number_of_threads():
    logits, cotangent = random_logits(5001, 4, 2), torch.randn(5001, 4, 4)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(with_gradient(lambda z: ops.mixing(z, single("go", 4, 2)), logits, cotangent))
    finally:
        torch.set_num_threads(before)
    for matrix, gradient in results[1:]:
        assert torch.equal(matrix, results[0][0])
        assert torch.equal(gradient, results[0][1])


@needs_library
def test_a_child_process_has_threads_of_its_own():
    code = """
import os, torch
from gomhc.kernels import ops
from gomhc.kernels.forms import single
torch.set_num_threads(2)
logits = torch.randn(2000, 28)
before = ops.mixing(logits, single("go", 4, 2))
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(ops.mixing(logits, single("go", 4, 2)), before) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@needs_library
def test_torch_finds_nothing_wrong_with_the_operators():
    logits = torch.randn(5, 28, requires_grad=True)
    torch.library.opcheck(ops.mixing, (logits, single("go", 4, 2)))
    torch.library.opcheck(ops.mixing_backward, (logits.detach(), torch.randn(5, 4, 4), single("go", 4, 2)))
    n, d, c, k = 6, 3, 20, 11
    x, weight, scale, bias = (torch.randn(shape, requires_grad=True) for shape in ((n, d, c), (k, d * c), (k,), (k,)))
    torch.library.opcheck(ops.read, (x, weight, scale, bias, 0.1, 1e-6))
    mix, weights, y = (torch.randn(shape, requires_grad=True) for shape in ((n, d, d), (n, d), (n, c)))
    torch.library.opcheck(ops.write, (x, mix, weights, y))


@pytest.mark.parametrize("backend", FAST)
def test_second_derivatives_of_fast_maps_are_those_of_the_plain_one(backend):
    logits = torch.cat([random_logits(3, 3, 1, scale) for scale in (0.1, 1.0, 10.0, 200.0)]).requires_grad_()
    cotangent, direction = torch.randn(12, 3, 3), torch.randn_like(logits)

    def second(function):
        (first,) = torch.autograd.grad(function(logits, 3, 1), logits, cotangent, create_graph=True)
        return torch.autograd.grad(first, logits, direction)[0]

    with kernels.use(backend):
        fast = second(kernels.orthostochastic)
    torch.testing.assert_close(fast, second(plain_map), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", kernels.available())
def test_second_derivatives_of_the_layer_are_those_of_the_plain_one_in_float64(backend):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 6, Orthostochastic(num_streams=2))
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    streams, cotangent, direction = torch.randn(3, 2, 6), torch.randn(3, 2, 6), torch.randn(3, 2, 6)

    def second(module, dtype):
        x = streams.to(dtype).requires_grad_()
        inputs = [x, *module.parameters()]
        (first,) = torch.autograd.grad(module(x), x, cotangent.to(dtype), create_graph=True)
        return torch.autograd.grad(first, inputs, direction.to(dtype))

    exact = copy.deepcopy(connection).double()
    expected = second(exact, torch.float64)
    assert torch.autograd.gradgradcheck(exact, (streams.double().requires_grad_(),))
    with kernels.use(backend):
        gradients = second(connection, torch.float32)
    for gradient, oracle in zip(gradients, expected, strict=True):
        assert oracle.abs().max() > 0
        torch.testing.assert_close(gradient.double(), oracle, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", kernels.available())
def test_forward_mode_through_the_layer_is_the_jacobian_times_a_vector(backend, dtype):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 6, Orthostochastic(num_streams=2), start="near-identity").to(dtype)
    streams, tangent = torch.randn(3, 2, 6, dtype=dtype), torch.randn(3, 2, 6, dtype=dtype)
    with kernels.use(backend):
        with forward_ad.dual_level():
            output = forward_ad.unpack_dual(connection(forward_ad.make_dual(streams, tangent)))
        _, by_jvp = torch.func.jvp(connection, (streams,), (tangent,))
        expected = torch.autograd.functional.jvp(connection, streams, tangent)[1]  # by backward, twice
    torch.testing.assert_close(output.tangent, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_jvp, expected, rtol=1e-4, atol=1e-5)


@needs_library
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    d=st.integers(1, 9), c=st.integers(1, 70), p=st.integers(0, 30), count=st.integers(0, 70), seed=st.integers(0, 9)
)
def test_read_and_write_equal_the_plain_ones(d, c, p, count, seed):
    torch.manual_seed(seed)
    k = 2 * d + p
    x, weight, scale, bias = torch.randn(count, d, c), torch.randn(k, d * c), torch.randn(k), torch.randn(k)
    mix, weights, y = torch.randn(count, d, d), torch.randn(count, d), torch.randn(count, c)
    cases = (
        (fast_read, plain_read, (x, weight, scale, bias)),
        (lambda *t: (ops.write(*t),), lambda *t: (plain_streams.write(*t),), (x, mix, weights, y)),
    )
    for fast, plain, inputs in cases:
        found = outputs_and_gradients(fast, inputs)
        expected = outputs_and_gradients(plain, [tensor.double() for tensor in inputs])
        for one, other in zip(found, expected, strict=True):
            size = other.abs().max().item() if other.numel() else 0
            torch.testing.assert_close(one.double(), other, rtol=0, atol=(d * c + 50) * EPS * max(size, 1))


def fast_read(*tensors):
    return ops.read(*tensors, 0.1, 1e-3)[:3]


def plain_read(*tensors):
    return plain_streams.read_dynamic(*tensors, 0.1, 1e-3)


def outputs_and_gradients(function, inputs):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = function(*leaves)
    generator = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in outputs]
    return *outputs, *torch.autograd.grad(outputs, leaves, cotangents)


@pytest.mark.parametrize("batch", [(3,), (2, 5), (0,), (2, 0)])
def test_the_layer_is_the_same_in_every_version(batch):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 20, Orthostochastic(num_streams=3))
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    streams, cotangent = torch.randn(*batch, 3, 20), torch.randn(*batch, 3, 20)
    results = []
    for backend in kernels.available():
        with kernels.use(backend):
            results.append(outputs_and_gradients(lambda x: (connection(x),), [streams]))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-5)
    assert cotangent.shape == results[0][0].shape


@pytest.mark.unchecked
def test_the_plain_version_can_be_forced_and_an_absent_one_is_refused(monkeypatch):
    seen = []
    monkeypatch.setattr(
        kernels.plain_map, "orthostochastic", lambda *args, **sizes: seen.append(args) or plain_map(*args, **sizes)
    )
    go = Orthostochastic(num_streams=2)
    with kernels.use("plain"):
        go(torch.randn(6))
    assert len(seen) == 1
    with pytest.raises(ValueError, match=r"kernels 'cuda' are not available here, only .*see gomhc doctor"):
        kernels.use("cuda").__enter__()


def test_float64_is_always_plain():
    assert kernels.chosen(torch.zeros(2, dtype=torch.float64)) == "plain"
    assert torch.equal(Orthostochastic(num_streams=2)(torch.ones(6).double()), plain_map(torch.ones(6).double(), 2, 2))


def test_without_a_library_the_batched_version_takes_over(monkeypatch):
    monkeypatch.setattr(kernels.dispatch, "COMPILED", {})
    assert kernels.chosen(torch.zeros(2)) == "batched"
    seen = []
    original = batched.orthostochastic
    monkeypatch.setattr(batched, "orthostochastic", lambda *args: seen.append(1) or original(*args))
    Orthostochastic(num_streams=2)(torch.randn(3, 6))
    assert seen == [1]


@pytest.mark.unchecked
@needs_library
def test_compiled_operators_are_in_one_graph():
    connection = HyperConnection(torch.tanh, 20, Orthostochastic(num_streams=3))
    torch._dynamo.reset()
    compiled = torch.compile(connection, fullgraph=True, backend="aot_eager")
    streams = torch.randn(4, 3, 20)
    found = outputs_and_gradients(lambda x: (compiled(x),), [streams])
    torch.testing.assert_close(found, outputs_and_gradients(lambda x: (connection(x),), [streams]))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_sanitizers_find_nothing(tmp_path):
    """Addresses and undefined behaviour, over odd sizes, both precisions and two threads; `make soak` has all."""
    native = Path(gomhc.__file__).parent / "kernels" / "native"
    flags = ["-O1", "-g", "-std=c++17", "-Wno-psabi", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags.append("-DGOMHC_BASELINE")  # one of three: the others take as long to compile
    program, source = tmp_path / "sanitize", Path(__file__).parent / "sanitize.cpp"
    subprocess.run(["g++", *flags, "-I", str(native), str(source), "-o", str(program), "-pthread"], check=True)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # the pool's threads outlive main on purpose
    done = subprocess.run([program], capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "clean\n"
