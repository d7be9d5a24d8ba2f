"""Reading and writing in C++: every dtype, shared and steered coefficients, all numbers of streams, odd sizes."""

from __future__ import annotations

import copy

import pytest
import torch

from gomhc import HyperConnection, Orthostochastic, kernels
from gomhc.kernels import ops, plain_streams
from gomhc.kernels.library import ELEMENTS, library

pytestmark = pytest.mark.skipif(library() is None, reason="the library is not built: no C++ compiler")

DTYPES = list(ELEMENTS)
HALVES = [torch.bfloat16, torch.float16]
STREAMS = [1, 2, 3, 4, 5, 8, 16, 17, 64]
CHANNELS = [1, 5, 8, 33, 48, 71]
TOKENS = [0, 1, 2, 63, 64, 65, 1000]
EPS = torch.finfo(torch.float32).eps


def half_ulp(exact, dtype):
    """Half of the distance between the numbers of a dtype around each of these, and at least that of the smallest."""
    kind = torch.finfo(dtype)
    return kind.eps / 2 * exact.abs().clamp(min=kind.tiny)


def assert_rounded_once(results, exact, terms):
    """Each result is the exact one within half an ulp of its dtype and what float32 loses in so many terms."""
    for result, oracle in zip(results, exact, strict=True):
        assert result.shape == oracle.shape
        if result.numel() == 0:
            continue
        rounding = half_ulp(oracle, result.dtype) if result.dtype != torch.float32 else 0
        slack = (terms + 50) * EPS * max(oracle.abs().max().item(), 1)
        assert ((result.double() - oracle).abs() <= 1.01 * rounding + slack).all()


def outputs_and_gradients(function, inputs):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = function(*leaves)
    generator = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(output.shape, generator=generator).bfloat16().to(output.dtype) for output in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, cotangents)]


def cases():
    """Every number of streams with every number of tokens, and channels in turn; large ones are left out."""
    for i, d in enumerate(STREAMS):
        for j, count in enumerate(TOKENS):
            if d * count <= 17000:
                yield d, CHANNELS[(i + j) % len(CHANNELS)], count


def check(fast, plain, inputs, terms):
    results = outputs_and_gradients(fast, inputs)
    exact = outputs_and_gradients(plain, [tensor.double() for tensor in inputs])
    assert_rounded_once(results, exact, terms)


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_is_the_exact_one_rounded_once(dtype):
    for d, c, count in cases():
        torch.manual_seed(count)
        k = 2 * d + 3
        weight, scale, bias = torch.randn(k, d * c) / (d * c) ** 0.5, torch.rand(k), torch.randn(k)
        inputs = torch.randn(count, d, c).to(dtype), weight, scale, bias
        check(
            lambda *t: ops.read(*t, 0.1, 1e-3)[:3],
            lambda *t: plain_streams.read_dynamic(*t, 0.1, 1e-3),
            inputs,
            d * c + count,
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_with_shared_weights_is_the_exact_one_rounded_once(dtype):
    for d, c, count in cases():
        torch.manual_seed(count)
        inputs = torch.randn(count, d, c).to(dtype), torch.randn(d)
        check(lambda *t: [ops.read_shared(*t)], lambda *t: [plain_streams.read(*t)], inputs, d * c + count)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_write_is_the_exact_one_rounded_once(dtype, shared):
    for d, c, count in cases():
        torch.manual_seed(count)
        batch = () if shared else (count,)
        streams, output = torch.randn(count, d, c).to(dtype), torch.randn(count, c).to(dtype)
        inputs = streams, torch.randn(*batch, d, d), torch.randn(*batch, d), output
        check(lambda *t: [ops.write(*t)], lambda *t: [plain_streams.write(*t)], inputs, d + c + count)


@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_is_read_and_written_as_it_is(dtype):
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    for channels in (16, 1):
        streams = numbers.view(-1, 1, channels)
        read = ops.read_shared(streams, torch.ones(1)).flatten()
        written = ops.write(torch.zeros_like(streams), torch.zeros(1, 1), torch.ones(1), streams[:, 0]).flatten()
        torch.testing.assert_close(read, numbers, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(written, numbers, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_floats_are_rounded_to_the_nearest_and_ties_to_even(dtype):
    """Over the whole range: beyond the largest, at ties, below the smallest; infinities and NaN."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).float()
    finite = halves[halves.isfinite()].sort().values
    ties = (finite[1:].double() + finite[:-1].double()).div(2).float()
    near = [torch.nextafter(ties, torch.full_like(ties, side)) for side in (-torch.inf, torch.inf)]
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.4e38, -3.4e38, 65519.9, 65520.0, 1e-40, 0.0])
    values = torch.cat((finite, ties, *near, special))
    count = len(values)
    for channels in (1, 16):
        zeros, ones = torch.zeros(count, 1, channels, dtype=dtype), torch.ones(count, channels, dtype=dtype)
        rounded = ops.write(zeros, torch.zeros(1, 1).expand(count, 1, 1), values[:, None], ones)
        expected = values.to(dtype)[:, None, None].expand_as(rounded)
        torch.testing.assert_close(rounded, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wider_output_of_the_branch_is_rounded_once(dtype):
    """As where the streams are half precision and the branch is not."""
    torch.manual_seed(0)
    streams, mix, weights, y = (
        torch.randn(9, 3, 20).to(dtype),
        torch.rand(9, 3, 3),
        torch.rand(9, 3),
        torch.randn(9, 20),
    )
    result = kernels.write(streams, mix, weights, y)
    assert result.dtype == dtype
    exact = plain_streams.write(*(tensor.double() for tensor in (streams, mix, weights, y)))
    assert_rounded_once([result], [exact], 4)


@pytest.mark.unchecked
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("streams", [torch.float32, *HALVES])
@pytest.mark.parametrize("parameters", [torch.float32, *HALVES])
def test_no_dtype_falls_back_to_torch(monkeypatch, streams, parameters, dynamic):
    """Of the streams, of a module that was cast, of a branch under autocast."""
    connection = HyperConnection(torch.tanh, 20, Orthostochastic(num_streams=4), dynamic=dynamic).to(parameters)

    def fail(*_):
        raise AssertionError("the plain version was called")

    for name in ("read", "read_dynamic", "write"):
        monkeypatch.setattr(plain_streams, name, fail)
    x = torch.randn(2, 5, 4, 20).to(streams).requires_grad_()
    for branch_dtype in DTYPES:
        connection.branch = lambda h, dtype=branch_dtype: torch.tanh(h).to(dtype)
        output = connection(x)
        assert output.dtype == streams
        for gradient, leaf in zip(
            torch.autograd.grad(output, (x, *connection.parameters()), torch.randn_like(output)),
            (x, *connection.parameters()),
            strict=True,
        ):
            assert gradient.dtype == leaf.dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_shared_gradients_do_not_depend_on_the_number_of_threads(dtype):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 24, Orthostochastic(num_streams=4), dynamic=False)
    streams, cotangent = torch.randn(1777, 4, 24).to(dtype), torch.randn(1777, 4, 24).to(dtype)
    before, results = torch.get_num_threads(), []
    try:
        for threads in range(1, 9):
            torch.set_num_threads(threads)
            results.append(torch.autograd.grad(connection(streams), list(connection.parameters()), cotangent))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))


def test_backward_keeps_no_copy_of_shared_coefficients():
    kept = []
    connection = HyperConnection(torch.tanh, 24, Orthostochastic(num_streams=4), dynamic=False)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        connection(torch.randn(1000, 4, 24, requires_grad=True))
    large = [size for size in kept if size > 4 * 24]
    assert len(large) == 4, large  # the streams twice, what tanh and the branch returned
    assert max(large) == 1000 * 4 * 24


@pytest.mark.parametrize("dtype", HALVES)
def test_backward_keeps_half_precision_streams_as_they_are(dtype):
    kept = []
    connection = HyperConnection(torch.tanh, 24, Orthostochastic(num_streams=4))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda x: x):
        connection(torch.randn(1000, 4, 24).to(dtype).requires_grad_())
    assert {tensor.dtype for tensor in kept if tensor.numel() > 36 * 1000} == {dtype}


@pytest.mark.parametrize("mixing", ["go", "sinkhorn", "sinkhorn-v4", "permutations", "identity"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(1, 1), (3,), (2, 65), (0, 4)])
def test_without_a_gradient_the_layer_is_the_same_bit_for_bit(mixing, dtype, batch):
    """Read and map are one call then."""
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 20, mixing, num_streams=4, start="near-identity")
    streams = torch.randn(*batch, 4, 20).to(dtype)
    with torch.no_grad():
        alone = connection(streams)
    assert torch.equal(alone, connection(streams))


def test_a_map_of_other_sizes_is_not_connected():
    x, weight, scale, bias = torch.randn(5, 3, 8), torch.randn(9, 24), torch.randn(3), torch.randn(9)
    with pytest.raises(ValueError, match=r"takes 3 streams and 15 logits, got 3 and a bias of shape \(9,\)"):
        ops.connect(x, None, None, None, weight, scale, bias, 0.0, 1e-6, "go:3:2:0.0")


def test_what_is_written_before_comes_whole():
    x, bias = torch.randn(5, 3, 8), torch.randn(21)
    with pytest.raises(ValueError, match="must come together"):
        ops.connect(x, torch.randn(5, 3, 3), None, None, None, None, bias, 0.0, 1e-6, "go:3:2:0.0")
    with pytest.raises(ValueError, match="must come together"):
        ops.connect(x, None, None, None, torch.randn(21, 24), None, bias, 0.0, 1e-6, "go:3:2:0.0")


BEFORE = ["nothing", "of each token", "of all tokens"]
"""Coefficients of the connection before, whose write is joined with the read."""


def connection_inputs(d, c, count, dtype, dynamic, before):
    """Streams, what is to be written to them, and parameters, so that every coefficient depends on everything."""
    torch.manual_seed(0)
    mixing = Orthostochastic(num_streams=d, expressivity=1)
    k = 2 * d + mixing.num_logits
    own = (count,) if before == "of each token" else ()
    written = [torch.rand(*own, d, d) / d, torch.randn(*own, d), torch.randn(count, c).to(dtype)]
    parameters = [torch.randn(k, d * c) / (d * c) ** 0.5, torch.randn(3), 0.3 * torch.randn(k)]
    streams = torch.randn(count, d, c).to(dtype)
    return mixing, [streams, *([] if before == "nothing" else written), *parameters[0 if dynamic else 2 :]]


def as_connection(mixing, dynamic, before, connect):
    """`connect` as a function of the tensors that there are."""

    def function(streams, *tensors):
        written, parameters = ((), tensors) if before == "nothing" else (tensors[:3], tensors[3:])
        weight, scale, bias = parameters if dynamic else (None, None, *parameters)
        results = connect(streams, written or None, weight, scale, bias, 0.1, 1e-6, mixing.kernel, mixing)
        return results[1:] if before == "nothing" else results

    return function


def in_steps(streams, before, weight, scale, bias, read_offset, epsilon, form, mixing):
    if before is not None:
        streams = plain_streams.write(streams, *before)
    return streams, *plain_streams.connection(streams, weight, scale, bias, read_offset, epsilon, mixing)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("d", "c", "count"), [case for case in cases() if case[0] <= 8])
def test_a_whole_connection_is_write_read_and_map_with_its_gradients(d, c, count, dynamic, before):
    mixing, inputs = connection_inputs(d, c, count, torch.float32, dynamic, before)
    fast = as_connection(mixing, dynamic, before, kernels.connect)
    check(fast, as_connection(mixing, dynamic, before, in_steps), inputs, terms=4 * d * c + 4 * count)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("d", "c", "count"), [(2, 33, 130), (4, 48, 65), (3, 5, 7)])
def test_a_whole_connection_in_half_precision(d, c, count, dtype, dynamic, before):
    """Streams are rounded after the write, and their gradient before its backward: twice in all."""
    mixing, inputs = connection_inputs(d, c, count, dtype, dynamic, before)
    results = outputs_and_gradients(as_connection(mixing, dynamic, before, kernels.connect), inputs)
    exact = outputs_and_gradients(
        as_connection(mixing, dynamic, before, in_steps), [tensor.double() for tensor in inputs]
    )
    for result, oracle in zip(results, exact, strict=True):
        error = torch.linalg.vector_norm(result.double() - oracle)
        assert error <= 4 * torch.finfo(dtype).eps * torch.linalg.vector_norm(oracle)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_one_pass_a_connection_is_the_same_bit_for_bit(dtype, dynamic, before):
    mixing, inputs = connection_inputs(4, 40, 300, dtype, dynamic, before)
    joined = as_connection(mixing, dynamic, before, kernels.connect)(*inputs)

    def one_by_one(streams, written, weight, scale, bias, read_offset, epsilon, form, mixing):
        if written is not None:
            streams = ops.write(streams, *written)
        if weight is None:
            read, write, logits = plain_streams.coefficients(bias, 4, read_offset)
            return streams, ops.read_shared(streams, read), write, mixing(logits)
        scale = plain_streams.spread_scale(scale, 4, len(bias))
        branch_input, write, logits, *_ = ops.read(streams, weight, scale, bias, read_offset, epsilon)
        return streams, branch_input, write, mixing(logits)

    apart = as_connection(mixing, dynamic, before, one_by_one)(*inputs)
    for one, other in zip(joined, apart, strict=True):
        if dynamic:
            assert torch.equal(one, other)
        else:  # the sigmoid of the plain version
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("dynamic", [True, False])
def test_second_derivatives_of_a_whole_connection(dynamic, before):
    mixing, inputs = connection_inputs(2, 5, 3, torch.float32, dynamic, before)

    def second(connect, dtype):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs]
        outputs = as_connection(mixing, dynamic, before, connect)(*leaves)
        generator = torch.Generator().manual_seed(0)
        cotangents = [torch.randn(output.shape, generator=generator).to(dtype) for output in outputs]
        first = torch.autograd.grad(outputs, leaves, cotangents, create_graph=True)
        directions = [torch.randn(leaf.shape, generator=generator).to(dtype) for leaf in leaves]
        needed = [(grad, way) for grad, way in zip(first, directions, strict=True) if grad.requires_grad]
        gradients, ways = zip(*needed, strict=True)
        return torch.autograd.grad(gradients, leaves, ways, allow_unused=True)

    for gradient, oracle in zip(second(kernels.connect, torch.float32), second(in_steps, torch.float64), strict=True):
        assert (gradient is None) == (oracle is None)
        if oracle is not None:
            torch.testing.assert_close(gradient.double(), oracle, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("mixing", ["go", "identity"])
def test_second_derivatives_where_some_results_are_constants(mixing, dynamic, before):
    """Static coefficients that are frozen are constants, and so is a mix that is the identity."""
    torch.manual_seed(0)
    connection = HyperConnection(None, 5, mixing, 2, dynamic=dynamic, start="near-identity").requires_grad_(False)
    coefficients, streams = connection.coefficients, torch.randn(3, 2, 5, requires_grad=True)
    own = (3,) if before == "of each token" else ()
    written = None if before == "nothing" else (torch.rand(*own, 2, 2), torch.rand(*own, 2), torch.randn(3, 5))

    def second(backend):
        with kernels.use(backend):
            results = kernels.connect(
                *(streams, written, coefficients.weight, coefficients.scale, coefficients.bias, 0.0, 1e-6),
                *(connection.mixing.kernel, connection.mixing),
            )
            loss = sum(result.pow(3).sum() for result in results)
            (gradient,) = torch.autograd.grad(loss, streams, create_graph=True)
            return torch.autograd.grad(gradient.square().sum(), streams)[0]

    torch.testing.assert_close(second("native"), second("plain"), rtol=1e-3, atol=1e-3)


def test_a_connection_on_another_device_is_refused():
    """Torch would choose the version without numbers, and hand memory back that nobody has written to."""
    connection = HyperConnection(None, 5, num_streams=2, device="meta")
    with pytest.raises(ValueError, match="on one device, got cpu, meta"):
        connection.read(torch.randn(3, 2, 5))
    with pytest.raises(ValueError, match="on one device, got cpu, meta"), torch.no_grad():
        connection.read(torch.randn(3, 2, 5))


def test_what_are_no_streams_is_refused_by_a_connection():
    mixing = Orthostochastic(num_streams=2)
    for grad in (True, False):
        with pytest.raises(ValueError, match="streams must be real floating point"), torch.set_grad_enabled(grad):
            kernels.connect(torch.randn(4), None, None, None, torch.zeros(10), 0.0, 1e-6, mixing.kernel, mixing)


@pytest.mark.parametrize("other", ["weight", "scale", "bias"])
def test_parameters_of_a_connection_may_differ_in_dtype(other):
    connection = HyperConnection(None, 5, num_streams=2, start="near-identity")
    streams, expected = torch.randn(3, 2, 5), copy.deepcopy(connection)
    for each, dtype in ((expected, torch.float32), (connection, torch.bfloat16)):
        parameter = getattr(each.coefficients, other)
        parameter.data = parameter.data.bfloat16().to(dtype)
    for one, two in zip(connection.read(streams)[1], expected.read(streams)[1], strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_finds_nothing_wrong_with_the_operators(dtype):
    torch.manual_seed(0)
    n, d, c, k = 6, 3, 20, 11
    x, y = torch.randn(n, d, c).to(dtype).requires_grad_(), torch.randn(n, c).to(dtype).requires_grad_()
    weight, scale, bias, mix, weights = (
        torch.randn(shape, requires_grad=True) for shape in ((k, d * c), (k,), (k,), (d, d), (d,))
    )
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(ops.read, (x, weight, scale, bias, 0.1, 1e-6), test_utils=tests)
    torch.library.opcheck(ops.read_shared, (x, weights), test_utils=tests)
    torch.library.opcheck(ops.write, (x, mix, weights, y), test_utils=tests)
    settings = 0.1, 1e-6, "go:3:1:0.0"  # of three logits
    weight, three, bias = (torch.randn(shape, requires_grad=True) for shape in ((9, d * c), (3,), (9,)))
    for before in ((None, None, None), (mix, weights, y)):
        for parameters in ((weight, three, bias), (None, None, bias)):
            torch.library.opcheck(ops.connect, (x, *before, *parameters, *settings), test_utils=tests)


def test_second_derivatives_with_shared_coefficients_are_those_of_the_plain_one_in_float64():
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 6, Orthostochastic(num_streams=2), dynamic=False)
    streams, cotangent, direction = torch.randn(3, 2, 6), torch.randn(3, 2, 6), torch.randn(3, 2, 6)

    def second(module, dtype):
        x = streams.to(dtype).requires_grad_()
        (first,) = torch.autograd.grad(module(x), x, cotangent.to(dtype), create_graph=True)
        return torch.autograd.grad(first, [x, *module.parameters()], direction.to(dtype))

    expected = second(copy.deepcopy(connection).double(), torch.float64)
    for gradient, oracle in zip(second(connection, torch.float32), expected, strict=True):
        assert oracle.abs().max() > 0
        torch.testing.assert_close(gradient.double(), oracle, rtol=1e-3, atol=1e-4)


@pytest.mark.unchecked
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_connections_are_in_one_graph(dtype, dynamic):
    torch.manual_seed(0)
    connection = HyperConnection(torch.tanh, 20, Orthostochastic(num_streams=3), dynamic=dynamic)
    torch._dynamo.reset()
    compiled = torch.compile(connection, fullgraph=True, backend="aot_eager")
    streams = torch.randn(4, 3, 20).to(dtype)
    found = outputs_and_gradients(lambda x: [compiled(x)], [streams])
    torch.testing.assert_close(found, outputs_and_gradients(lambda x: [connection(x)], [streams]))
