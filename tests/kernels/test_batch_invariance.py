"""A token's results and gradients are its own, bit for bit: whatever the batch is made of besides, wherever the token
stands in it, and on however many threads.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from gomhc import HyperConnection, Orthostochastic, kernels
from gomhc.kernels import library, ops
from gomhc.kernels.row_product import row_product
from gomhc.layers import Pending

BACKENDS = [name for name in ("native", "batched", "plain") if name in kernels.available()]
SIZES = [1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 65, 100, 127, 129, 255, 257, 500, 511, 777, 999, 1000]
SCALES = [1e-3, 1.0, 4.0, 1e2, 1e4]
"""Of the neighbours."""
THREADS = range(1, 9)
MAPS = [(2, 1), (3, 1), (4, 1), (5, 1), (3, 2), (4, 2), (5, 2), (4, 3), (8, 2)]


@contextmanager
def num_threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def among(tokens, size, scale, generator, spread=(1,)):
    """Batches of `size`, each a tensor a kind of input, in which the tokens stand among neighbours; and their places.

    Each kind of input has its own scale of neighbours: `scale` to the power in `spread`.
    """
    count = len(tokens[0])
    for first in range(0, count, size):
        chosen = slice(first, min(first + size, count))
        places = torch.randperm(size, generator=generator)[: chosen.stop - first]
        batch = []
        for tensor, power in zip(tokens, spread, strict=True):
            neighbours = scale**power * torch.randn(size, *tensor.shape[1:], generator=generator)
            batch.append(neighbours.to(tensor.dtype).index_copy(0, places, tensor[chosen]))
        yield chosen, places, batch


def assert_invariant(function, tokens, sizes=SIZES, scales=SCALES, threads=THREADS, spread=(1, 0)):
    """`function` takes batches of the tokens' inputs and returns batches of results; each token alone is the oracle."""
    generator = torch.Generator().manual_seed(1)
    count = len(tokens[0])
    with num_threads(1):
        alone = [function(*(tensor[i : i + 1] for tensor in tokens)) for i in range(count)]
    expected = [torch.cat(results) for results in zip(*alone, strict=True)]
    for index, size in enumerate(sizes):
        scale = scales[index % len(scales)]
        with num_threads(list(threads)[index % len(threads)]):
            for chosen, places, batch in among(tokens, size, scale, generator, spread):
                for result, oracle in zip(function(*batch), expected, strict=True):
                    assert torch.equal(result[places], oracle[chosen]), (size, scale, torch.get_num_threads())


def probes(d, s):
    """Logits that take every way through the map: small, at the limits, large, sparse, saturated."""
    n = d * s
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, n * (n - 1) // 2, generator=generator)
    scales = torch.tensor([1e-3, 0.1, 1.0, 2.0, 3.0, 10.0, 1e2, 1e3, 1e5, 1e30]).repeat(3)[:, None]
    sparse = torch.rand(logits.shape, generator=generator) < 0.5
    logits = torch.where(sparse & (torch.arange(30) >= 20)[:, None], 0, scales * logits)
    return logits, torch.randn(30, d, d, generator=generator)


def map_and_gradient(function):
    def evaluated(logits, cotangent):
        logits = logits.detach().requires_grad_()
        matrix = function(logits)
        return matrix.detach(), torch.autograd.grad(matrix, logits, cotangent)[0]

    return evaluated


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("d", "s"), MAPS)
def test_a_matrix_and_its_gradient_do_not_depend_on_the_batch(d, s, backend):
    with kernels.use(backend):
        assert_invariant(map_and_gradient(lambda z: kernels.orthostochastic(z, d, s)), probes(d, s))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_matrix_does_not_depend_on_any_batch_size_up_to_a_thousand(backend):
    with kernels.use(backend):
        function = map_and_gradient(lambda z: kernels.orthostochastic(z, 4, 2))
        for scale in SCALES:
            assert_invariant(function, probes(4, 2), sizes=range(1, 1001), scales=[scale])


def layer(d, c, s, dtype=torch.float32):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, c, Orthostochastic(num_streams=d, expressivity=s))
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    tokens = torch.randn(12, d, c) * torch.logspace(-3, 4, 12)[:, None, None]
    return connection, (tokens.to(dtype), torch.randn(12, d, c).to(dtype))


def output_and_gradient(connection):
    def evaluated(streams, cotangent):
        streams = streams.detach().requires_grad_()
        output = connection(streams)
        return output.detach(), torch.autograd.grad(output, streams, cotangent)[0]

    return evaluated


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("d", "c"), [(4, 24), (2, 70), (4, 700)])
def test_joined_connections_do_not_depend_on_the_batch(d, c, dtype):
    """The write of one and the read of the next are one call; where there are many channels, pieces are smaller."""
    connection, tokens = layer(d, c, 2, dtype)

    def joined(streams):
        branch_input, state = connection.read(streams)
        branch_input, state = connection.read(Pending(state, torch.tanh(branch_input)))
        return connection.write(state, torch.tanh(branch_input))

    assert_invariant(output_and_gradient(joined), tokens, sizes=SIZES[::3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("d", "c", "s"), [(2, 8, 1), (3, 20, 2), (4, 64, 2), (8, 48, 1), (4, 384, 2)])
def test_a_token_does_not_depend_on_the_batch_in_the_layer(d, c, s, backend, dtype):
    connection, tokens = layer(d, c, s, dtype)
    with kernels.use(backend):
        assert_invariant(output_and_gradient(connection), tokens)


@pytest.mark.skipif("native" not in BACKENDS, reason="the library is not built: no C++ compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("d", "c", "s"), [(1, 1, 1), (3, 21, 1), (3, 37, 2), (2, 9, 3), (7, 129, 1), (5, 999, 1)])
def test_odd_widths_make_no_difference_in_c(d, c, s, dtype):
    """In torch they do: no BLAS promises anything."""
    connection, tokens = layer(d, c, s, dtype)
    assert_invariant(output_and_gradient(connection), tokens)


@pytest.mark.skipif("native" not in BACKENDS, reason="the library is not built: no C++ compiler")
@pytest.mark.parametrize("c", [1, 2, 5, 7, 8, 9, 15, 16, 17, 23, 33, 40, 47, 48, 49, 1023, 1025, 7007])
def test_products_in_c_depend_on_their_own_token_alone(c):
    """The products with W, inside of read and its gradient, for one stream."""
    generator = torch.Generator().manual_seed(c)
    for k in (2, 3, 4, 7, 19, 20, 35):
        weight, scale, bias = (torch.randn(shape, generator=generator) for shape in ((k, c), (k,), (k,)))

        def products(x, grad_input, grad_logits, parameters=(weight, scale, bias), k=k):
            _, _, _, projection, inverse_rms = ops.read(x[:, None], *parameters, 0.0, 1e-6)
            torch.testing.assert_close(
                projection, x @ parameters[0].T, rtol=1e-4, atol=1e-4 * x.abs().max().item() * c**0.5
            )
            grads = grad_input, grad_logits[:, :1], grad_logits[:, 2:k]
            saved = (x[:, None], *parameters, projection, inverse_rms)
            return projection, ops.read_backward(*grads, *saved, 0.0)[0]

        tokens = [torch.randn(11, size, generator=generator) for size in (c, c, k)]
        assert_invariant(products, tokens, sizes=[1, 2, 7, 8, 9, 65, 130], scales=[1.0, 1e3], spread=(1, 1, 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("d", "c"), [(2, 8), (4, 64), (4, 384)])
def test_a_token_does_not_depend_on_the_batch_where_coefficients_are_static(d, c, backend):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, c, Orthostochastic(num_streams=d), dynamic=False, start="near-identity")
    tokens = torch.randn(12, d, c), torch.randn(12, d, c)
    with kernels.use(backend):
        assert_invariant(output_and_gradient(connection), tokens)


@pytest.mark.skipif("native" not in BACKENDS, reason="the library is not built: no C++ compiler")
@pytest.mark.parametrize(("d", "c", "dtype"), [(3, 21, torch.float32), (4, 64, torch.bfloat16), (17, 5, torch.float16)])
def test_static_coefficients_and_odd_widths_make_no_difference_in_c(d, c, dtype):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, c, Orthostochastic(num_streams=d, expressivity=1), dynamic=False)
    tokens = torch.randn(12, d, c).to(dtype), torch.randn(12, d, c).to(dtype)
    assert_invariant(output_and_gradient(connection), tokens)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_parameters_do_not_depend_on_the_number_of_threads(backend):
    connection, _ = layer(4, 64, 2)
    streams, cotangent = torch.randn(777, 4, 64), torch.randn(777, 4, 64)
    results = []
    with kernels.use(backend):
        for number in THREADS:
            with num_threads(number):
                results.append(torch.autograd.grad(connection(streams), list(connection.parameters()), cotangent))
    for result in results[1:]:
        for gradient, expected in zip(result, results[0], strict=True):
            torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("i", "j"), [(5, 3), (1536, 36), (36, 1536), (4096, 24), (60, 200)])
def test_a_row_of_a_product_depends_on_its_row_alone(i, j):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(i, j, generator=generator)
    cotangents = torch.randn(40, j, generator=generator)

    def product(rows, cotangent):
        rows = rows.detach().requires_grad_()
        result = row_product(rows, matrix)
        return result.detach(), torch.autograd.grad(result, rows, cotangent)[0]

    assert_invariant(product, (torch.randn(40, i, generator=generator), cotangents))


def test_a_row_product_and_its_gradients_are_those_of_the_matrix_product():
    generator = torch.Generator().manual_seed(0)
    for count in (0, 1, 2, 33):
        rows = torch.randn(2, count, 7, generator=generator, dtype=torch.float64).requires_grad_()
        matrix = torch.randn(7, 5, generator=generator, dtype=torch.float64).requires_grad_()
        torch.testing.assert_close(row_product(rows, matrix), rows @ matrix)
    rows = torch.randn(33, 2, generator=generator, dtype=torch.float64).requires_grad_()
    matrix = torch.randn(2, 3, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(row_product, (rows, matrix))
    assert torch.autograd.gradgradcheck(row_product, (rows, matrix))


def packed(tensors, generator):
    """Copies of the tensors in one piece of memory, in any order and at most 15 numbers apart."""
    numbers = torch.empty(sum(tensor.numel() + 15 for tensor in tensors.values()) + 15)
    place, copies = int(torch.randint(16, (), generator=generator)), {}
    for index in torch.randperm(len(tensors), generator=generator).tolist():
        name, tensor = list(tensors.items())[index]
        copies[name] = numbers[place : place + tensor.numel()].view(tensor.shape).copy_(tensor)
        place += tensor.numel() + int(torch.randint(16, (), generator=generator))
    return copies


@pytest.mark.skipif("native" not in BACKENDS, reason="the library is not built: no C++ compiler")
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("d", "c", "s"), [(2, 70, 2), (3, 20, 1), (4, 64, 2), (5, 21, 1), (8, 17, 1)])
def test_results_do_not_depend_on_where_tensors_lie_in_memory(d, c, s, dynamic, monkeypatch):
    """Compilers write a second loop for arrays that may overlap, and GCC rounds in it differently."""
    calls = []

    def remembered(name, inputs, outputs, **sizes):
        library.call(name, inputs, outputs, **sizes)
        calls.append((name, inputs, outputs, sizes))

    monkeypatch.setattr(ops, "call", remembered)
    torch.manual_seed(0)
    mixing = Orthostochastic(num_streams=d, expressivity=s)
    connection = HyperConnection(torch.tanh, c, mixing, dynamic=dynamic, start="near-identity")
    streams = torch.randn(9, d, c, requires_grad=True)
    branch_input, state = connection.read(streams)
    branch_input, state = connection.read(Pending(state, torch.tanh(branch_input)))
    output = connection.write(state, torch.tanh(branch_input))
    torch.autograd.grad(output, [streams, *connection.parameters()], torch.randn(output.shape))
    parameters = [torch.randn(shape) for shape in ((3 * d, d * c), (3 * d,), (3 * d,))]  # with d logits for the mix
    input_, write, mix, projection, rms = ops.read(streams.detach(), *parameters, 0.1, 1e-6)
    ops.read_backward(input_, write, mix, streams.detach(), *parameters, projection, rms, 0.1)
    generator = torch.Generator().manual_seed(0)
    made = {(name, sizes["back"]) for name, _, _, sizes in calls}
    assert made >= {(name, back) for name in ("connect", "write", "read") for back in (0, 1)}
    for name, inputs, outputs, sizes in calls:
        for _ in range(100):
            moved = packed(inputs | outputs, generator)
            library.call(name, {key: moved[key] for key in inputs}, {key: moved[key] for key in outputs}, **sizes)
            assert all(torch.equal(moved[key], expected) for key, expected in outputs.items()), name


# Triton, by its interpreter
# ----------------------------------------------------------------------------------------------------------------------

needs_triton = pytest.mark.skipif("triton" not in kernels.available(), reason="no CUDA, and no Triton interpreter")


@needs_triton
@pytest.mark.parametrize(("d", "s"), [(3, 1), (4, 2), (5, 2)])
def test_a_matrix_of_triton_does_not_depend_on_the_batch(d, s):
    mixing = Orthostochastic(num_streams=d, expressivity=s)
    tokens = [tensor[::3] for tensor in probes(d, s)]
    with kernels.use("triton"):
        assert_invariant(output_and_gradient(mixing), tokens, sizes=[1, 16, 33], threads=[1, 2])


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("d", "c", "s"), [(3, 20, 1), (4, 64, 2)])
def test_a_token_does_not_depend_on_the_batch_in_the_layer_of_triton(d, c, s, dtype):
    connection, (tokens, cotangents) = layer(d, c, s, dtype)
    tokens = (tokens[:6], cotangents[:6])
    with kernels.use("triton"):
        assert_invariant(output_and_gradient(connection), tokens, sizes=[1, 16, 17], threads=[1, 2])
