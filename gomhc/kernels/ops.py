"""The compiled operations as torch sees them: operators with fakes and gradients, so that torch.compile, torch.export
and autograd know them. C++ runs them on the CPU; `triton_ops.py` has their versions for CUDA. Streams may be half
precision; all else is float32.

Their gradients have no derivatives of their own: where a second derivative is asked for, the plain version is
differentiated instead.

d = num_streams, s = expressivity, p = number of logits, c = channels, k = 2d + p
"""
# No `from __future__ import annotations` here: torch makes the operators' schemas of the annotations themselves.

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gomhc.kernels import plain_streams
from gomhc.kernels.dispatch import INTERPRETED, asked_for, use
from gomhc.kernels.forms import LARGEST, parsed
from gomhc.kernels.library import call
from gomhc.kernels.precision import without_autocast

# Registered piece by piece: what torch.library.custom_op wraps around a call takes as long as some hundred matrices.
_library = torch.library.Library("gomhc", "FRAGMENT")
FOR_CUDA: dict[str, Callable[..., Any]] = {}
"""Name of an operator -> its version for CUDA, as `triton_ops` has it."""


def _operator(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make of a function, which is its version for the CPU, the operator gomhc::<name of the function>."""

    def register(function: Callable[..., Any]) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=())
        for name in (function.__name__, _raw(function.__name__)):
            _library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
            _library.impl(name, _on_cpu(function), "CPU")
            torch.library.register_fake(f"gomhc::{name}", fake, lib=_library)
        return getattr(torch.ops.gomhc, function.__name__).default

    return register


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or what CUDA takes where `use("triton")` asks for it and Triton is interpreted."""
    if not INTERPRETED:
        return function

    def run(*arguments: Any) -> Any:
        return (FOR_CUDA[function.__name__] if asked_for() == "triton" else function)(*arguments)

    return run


def for_cuda(operator: Any, function: Callable[..., Any]) -> None:
    """Make a function the operator's version for CUDA."""
    FOR_CUDA[_name(operator)] = function
    for name in (_name(operator), _raw(_name(operator))):
        _library.impl(name, function, "CUDA")


def _raw(name: str) -> str:
    """The same operator without a gradient, which the one with a gradient calls."""
    return f"{name}_without_gradient"


def _name(operator: Any) -> str:
    return str(operator.name()).removeprefix("gomhc::")


def _with_gradient(operator: Any, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    """Give the operator a gradient, at half of what torch.library.register_autograd takes for a call."""
    raw = getattr(torch.ops.gomhc, _raw(_name(operator))).default

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = raw(*inputs)
        setup(ctx, inputs, output)
        return output

    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(f"_{_name(operator)}", (torch.autograd.Function,), functions)
    _library.impl(_name(operator), function.apply, "Autograd")


def _differentiable(function: Callable[..., Any], inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Any]:
    """The gradients of a plain version at its inputs, with a graph of their own; None where none is wanted.

    They are taken at views of the inputs: one input may have been computed from another, and the gradient must not pass
    from one to the other here.
    """
    inputs = [tensor.view_as(tensor) for tensor in inputs]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    results = function(*inputs)
    results = [results] if isinstance(results, Tensor) else results
    pairs = [pair for pair in zip(results, grads, strict=True) if pair[0].requires_grad]  # a mix may be a constant
    outputs, at_outputs = [result for result, _ in pairs], [grad for _, grad in pairs]
    gradients = iter(torch.autograd.grad(outputs, wanted, at_outputs, create_graph=True, allow_unused=True))
    return [next(gradients) if tensor.requires_grad else None for tensor in inputs]


def _stream_sizes(streams: Tensor) -> dict[str, Any]:
    shape = streams.shape
    if len(shape) < 3 or not 1 <= shape[-2] <= LARGEST or shape[-1] < 1:
        raise ValueError(
            f"the compiled operations take 1 to {LARGEST} streams of shape (*tokens, d, c), got {tuple(shape)}; "
            f"gomhc.kernels takes any"
        )
    batch = shape[:-2]
    return {"axes": {"tokens": batch}, "tokens": batch.numel(), "d": shape[-2], "c": shape[-1]}


def _read_sizes(streams: Tensor, weight: Tensor, bias: Tensor) -> dict[str, Any]:
    sizes = _stream_sizes(streams)
    if bias.dim() != 1 or len(bias) < 2 * sizes["d"]:
        raise ValueError(f"bias must hold at least 2 d = {2 * sizes['d']} numbers, got shape {tuple(bias.shape)}")
    expected = (len(bias), sizes["d"] * sizes["c"])
    if weight.shape != expected:
        raise ValueError(f"weight must be of shape (k, d c) = {expected}, got {tuple(weight.shape)}")
    return {**sizes, "dc": expected[1], "k": len(bias), "p": len(bias) - 2 * sizes["d"]}


# The map
# ----------------------------------------------------------------------------------------------------------------------


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {}
"""Form of a map -> its plain version, which second derivatives are taken of."""


def _fake_mixing(logits: Tensor, form: str) -> Tensor:
    d = parsed(form).num_streams
    return logits.new_empty(*logits.shape[:-1], d, d)


def _fake_mixing_backward(logits: Tensor, grad: Tensor, form: str) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@_operator(_fake_mixing)
def mixing(logits: Tensor, form: str) -> Tensor:
    """(*batch, p) -> (*batch, d, d), by the map of this form (forms.py)."""
    sizes = _map_sizes(logits, form)
    d = sizes["d"]
    matrix = logits.new_empty(sizes["count"], d, d)
    call("map", {"logits": _flat(logits, 1)}, {"matrix": matrix}, **sizes, back=0)
    return matrix if logits.dim() == 2 else matrix.reshape(*logits.shape[:-1], d, d)


@_operator(_fake_mixing_backward)
def mixing_backward(logits: Tensor, grad: Tensor, form: str) -> Tensor:
    """The gradient at the logits, from that at the matrix; nothing is kept from forward but the logits."""
    sizes = _map_sizes(logits, form)
    flat = _flat(logits, 1)
    grad_logits = flat.new_empty(flat.shape)
    call("map", {"logits": flat, "matrix": _flat(grad, 2)}, {"grad_logits": grad_logits}, **sizes, back=1)
    return grad_logits if logits.dim() == 2 else grad_logits.reshape(logits.shape)


def _map_sizes(logits: Tensor, form: str) -> dict[str, Any]:
    num_streams, num_logits, parts = parsed(form)
    return {"count": logits.shape[:-1].numel(), "d": num_streams, "p": num_logits, "parts": parts}


def _flat(tensor: Tensor, inner: int) -> Tensor:
    """All dimensions but the last `inner` ones as one."""
    batch = tensor.dim() - inner
    return tensor.reshape(tensor.shape[:batch].numel(), *tensor.shape[batch:]) if batch != 1 else tensor


def _mixing_setup(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
    logits, ctx.form = inputs
    ctx.save_for_backward(logits)


def _mixing_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (logits,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        if ctx.form not in PLAIN:
            raise RuntimeError(f"{ctx.form} has no second derivatives here; call the mixing itself to have them")
        with use("plain"):
            (gradient,) = _differentiable(PLAIN[ctx.form], [logits], [grad])
        return gradient, None
    return mixing_backward(logits, grad, ctx.form), None


_with_gradient(mixing, _mixing_backward, _mixing_setup)


# Reading
# ----------------------------------------------------------------------------------------------------------------------


def _read_outputs(streams: Tensor, projection: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, d, c = streams.shape
    shapes = ((n, d), (n, projection.shape[1] - 2 * d), (n,))
    write_weights, mix_logits, inverse_rms = (projection.new_empty(shape) for shape in shapes)
    return streams.new_empty(n, c), write_weights, mix_logits, inverse_rms


def _fake_read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    projection = streams.new_empty(streams.shape[0], weight.shape[0], dtype=torch.float32)
    branch_input, write_weights, mix_logits, inverse_rms = _read_outputs(streams, projection)
    return branch_input, write_weights, mix_logits, projection, inverse_rms


def _fake_read_backward(
    grad_input: Tensor,
    grad_write: Tensor,
    grad_mix: Tensor,
    streams: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
    read_offset: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x = torch.empty_like(streams, memory_format=torch.contiguous_format)
    return grad_x, weight.new_empty(weight.shape), scale.new_empty(scale.shape), bias.new_empty(bias.shape)


@_operator(_fake_read)
def read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Streams (n, d, c), weight (k, d c), scale and bias (k) -> branch input (n, c), write (n, d), mix logits (n, p).

    Then what backward needs: the projection (n, k) and one over the root mean square (n).
    """
    sizes = _read_sizes(streams, weight, bias)
    outputs = _fake_read(streams, weight, scale, bias, read_offset, epsilon)
    call(
        "read",
        {"x": streams, "weight": weight, "scale": scale, "bias": bias},
        dict(zip(("input", "write", "mix", "projection", "inverse_rms"), outputs, strict=True)),
        **sizes,
        back=0,
        offset=read_offset,
        epsilon=epsilon,
    )
    return outputs


@_operator(_fake_read_backward)
def read_backward(
    grad_input: Tensor,
    grad_write: Tensor,
    grad_mix: Tensor,
    streams: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
    read_offset: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients at streams, weight, scale and bias."""
    sizes = _read_sizes(streams, weight, bias)
    grad_x = streams.new_empty(streams.shape)
    grad_projection, grad_logits = (projection.new_empty(projection.shape) for _ in range(2))
    inputs = {"x": streams, "weight": weight, "scale": scale, "bias": bias}
    saved = {"projection": projection, "inverse_rms": inverse_rms}
    outputs = {"grad_x": grad_x, "grad_projection": grad_projection, "grad_logits": grad_logits}
    if streams.dtype != torch.float32:  # for a BLAS they would have to be copied
        outputs["grad_weight"] = weight.new_empty(weight.shape)
    call(
        "read",
        inputs | saved | {"input": grad_input, "write": grad_write, "mix": grad_mix},
        outputs,
        **sizes,
        back=1,
        offset=read_offset,
        epsilon=0.0,  # inverse_rms has it
    )
    if "grad_weight" in outputs:
        shared = _shared_logit_gradients(grad_logits, scale, bias, projection, inverse_rms)
        return grad_x, outputs["grad_weight"], *shared
    tensors = (streams, weight, scale, bias, projection, inverse_rms)
    return grad_x, *parameter_gradients(grad_projection, grad_logits, *tensors)


def parameter_gradients(
    grad_projection: Tensor,
    grad_logits: Tensor,
    streams: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients at weight, scale and bias: sums over tokens."""
    with without_autocast(streams.device):
        grad_weight = grad_projection.T @ streams.flatten(1).float()
    return grad_weight.to(weight.dtype), *_shared_logit_gradients(grad_logits, scale, bias, projection, inverse_rms)


def _shared_logit_gradients(
    grad_logits: Tensor, scale: Tensor, bias: Tensor, projection: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients at scale and bias."""
    grad_scale = (grad_logits * projection * inverse_rms[:, None]).sum(0)
    return grad_scale.to(scale.dtype), grad_logits.sum(0).to(bias.dtype)


def _read_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.read_offset, ctx.epsilon = inputs
    *_, projection, inverse_rms = output
    ctx.mark_non_differentiable(projection, inverse_rms)
    ctx.save_for_backward(*tensors, projection, inverse_rms)


def _read_backward(
    ctx: Any, grad_input: Tensor, grad_write: Tensor, grad_mix: Tensor, *_: Tensor
) -> tuple[Tensor | None, ...]:
    grads = (grad_input, grad_write, grad_mix)
    if torch.is_grad_enabled():
        function = partial(plain_streams.read_dynamic, read_offset=ctx.read_offset, epsilon=ctx.epsilon)
        return *_differentiable(function, ctx.saved_tensors[:4], grads), None, None
    return *read_backward(*grads, *ctx.saved_tensors, ctx.read_offset), None, None


_with_gradient(read, _read_backward, _read_setup)


# A whole connection
# ----------------------------------------------------------------------------------------------------------------------


def _fake_connect(
    streams: Tensor,
    before_mix: Tensor | None,
    before_write: Tensor | None,
    output: Tensor | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    read_offset: float,
    epsilon: float,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    *batch, d, c = streams.shape
    own = [] if weight is None else batch
    out = streams.new_empty(0) if output is None else streams.new_empty(streams.shape)
    coefficients = bias.new_empty([*own, d]), bias.new_empty([*own, d, d])
    kept = bias.new_empty([*own, bias.shape[0]] if own else 0), bias.new_empty(own or 0)
    return out, streams.new_empty([*batch, c]), *coefficients, *kept


def _fake_connect_backward(
    grad_out: Tensor | None,
    grad_input: Tensor,
    grad_write: Tensor,
    grad_mix: Tensor,
    streams: Tensor,
    before_mix: Tensor | None,
    before_write: Tensor | None,
    output: Tensor | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    out: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
    read_offset: float,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    def gradient(tensor: Tensor | None) -> Tensor:
        return bias.new_empty(0) if tensor is None else torch.empty_like(tensor, memory_format=torch.contiguous_format)

    before = gradient(before_mix), gradient(before_write), gradient(output)
    return gradient(streams), *before, gradient(weight), gradient(scale), gradient(bias)


def _connection(
    streams: Tensor, before: Sequence[Tensor | None], parameters: Sequence[Tensor | None], form: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that there are, by their names in tasks.h, and the sizes; both are what C++ relies on."""
    sizes: dict[str, Any] = _stream_sizes(streams)
    d = sizes["d"]
    num_streams, num_logits, parts = parsed(form)
    weight, scale, bias = parameters
    if bias is None or (num_streams, 2 * d + num_logits) != (d, bias.numel()):
        raise ValueError(
            f"{form} takes {num_streams} streams and {num_logits} logits, got {d} and a bias of shape "
            f"{None if bias is None else tuple(bias.shape)}, which must hold 2 d more"
        )
    if len({tensor is None for tensor in before}) > 1 or (weight is None) != (scale is None):
        raise ValueError("mix, weights and output of the connection before must come together, and so weight and scale")
    mix = before[0]
    sizes |= {"k": len(bias), "dc": d * sizes["c"], "three": 3, "parts": parts}
    for name, is_shared in (("matrices", mix is None or mix.dim() == 2), ("own", weight is None)):
        sizes[name], sizes["axes"][name] = (1, ()) if is_shared else (sizes["tokens"], sizes["axes"]["tokens"])
    names = ("x", "before_mix", "before_write", "y", "weight", "scale", "bias")
    tensors = {
        name: tensor for name, tensor in zip(names, (streams, *before, *parameters), strict=True) if tensor is not None
    }
    return tensors, sizes


@_operator(_fake_connect)
def connect(
    streams: Tensor,
    before_mix: Tensor | None,
    before_write: Tensor | None,
    output: Tensor | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    read_offset: float,
    epsilon: float,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Write the connection before, where there is one, then read, and map the logits of the mix.

    Streams (*n, d, c), and mix, weights and output as for `write`, or None; weight (k, d c) and scale (3) for read,
    write and mix, or None where all tokens share the coefficients; bias (k) -> streams (*n, d, c), or nothing where
    none are written; branch input (*n, c), write weights (*n, d), mix (*n, d, d), without *n where tokens share them.

    Then what backward needs: the projection (*n, k) and one over the root mean square (*n), or nothing.
    """
    before, parameters = (before_mix, before_write, output), (weight, scale, bias)
    tensors, sizes = _connection(streams, before, parameters, form)
    results = _fake_connect(streams, *before, *parameters, read_offset, epsilon, form)
    out, branch_input, write_weights, mix, projection, inverse_rms = results
    outputs = {"input": branch_input, "write": write_weights, "mix": mix}
    if output is not None:
        outputs["out"] = out
    if weight is not None:
        outputs |= {"projection": projection, "inverse_rms": inverse_rms}
    call("connect", tensors, outputs, **sizes, back=0, offset=read_offset, epsilon=epsilon)
    return results


@_operator(_fake_connect_backward)
def connect_backward(
    grad_out: Tensor | None,
    grad_input: Tensor,
    grad_write: Tensor,
    grad_mix: Tensor,
    streams: Tensor,
    before_mix: Tensor | None,
    before_write: Tensor | None,
    output: Tensor | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    out: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
    read_offset: float,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients at streams, mix, weights and output before, weight, scale and bias; those of None are empty."""
    before, parameters = (before_mix, before_write, output), (weight, scale, bias)
    tensors, sizes = _connection(streams, before, parameters, form)
    grads = _fake_connect_backward(
        *(grad_out, grad_input, grad_write, grad_mix, streams, *before, *parameters),
        *(out, projection, inverse_rms, read_offset, form),
    )
    tensors |= {"input": grad_input, "write": grad_write, "mix": grad_mix}
    outputs = {"grad_x": grads[0], "grad_bias": grads[6]}
    if grad_out is not None:
        tensors["grad_out"] = grad_out
    if output is not None:
        tensors["out"] = out
        outputs |= {"grad_before_mix": grads[1], "grad_before_write": grads[2], "grad_y": grads[3]}
    if weight is not None:
        tensors |= {"projection": projection, "inverse_rms": inverse_rms}
        outputs |= {"grad_projection": projection.new_empty(projection.shape), "grad_scale": grads[5]}
        outputs["grad_weight"] = grads[4]
    call("connect", tensors, outputs, **sizes, back=1, offset=read_offset, epsilon=0.0)
    return grads


def _connect_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.read_offset, ctx.epsilon, ctx.form = inputs
    out, _, _, _, projection, inverse_rms = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(projection, inverse_rms, *([] if inputs[3] is not None else [out]))
    ctx.save_for_backward(*tensors, out, projection, inverse_rms)


def _connect_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, out, projection, inverse_rms = ctx.saved_tensors
    streams, weight, bias = tensors[0], tensors[4], tensors[6]
    *batch, d, c = streams.shape
    own = [] if weight is None else batch
    like = (streams, (*batch, c)), (bias, (*own, d)), (bias, (*own, d, d))
    grad_out, *others = grads[:4]
    needed = [
        tensor.new_zeros(shape) if grad is None else grad for grad, (tensor, shape) in zip(others, like, strict=True)
    ]
    if torch.is_grad_enabled():
        present = [tensor for tensor in tensors if tensor is not None]
        function = partial(_plain_connection, tensors, ctx.read_offset, ctx.epsilon, ctx.form)
        results_grads = [torch.zeros_like(streams) if grad_out is None else grad_out, *needed]
        gradients = iter(_differentiable(function, present, results_grads[tensors[3] is None :]))
        return *(None if tensor is None else next(gradients) for tensor in tensors), None, None, None
    results = connect_backward(grad_out, *needed, *tensors, out, projection, inverse_rms, ctx.read_offset, ctx.form)
    return *(None if tensor is None else grad for tensor, grad in zip(tensors, results, strict=True)), None, None, None


def _plain_connection(
    given: Sequence[Tensor | None], read_offset: float, epsilon: float, form: str, *present: Tensor
) -> tuple[Tensor, ...]:
    """`connect` by the plain versions, as a function of the tensors that are given; out only where it is written."""
    if form not in PLAIN:
        raise RuntimeError(f"{form} has no second derivatives here; call the mixing itself to have them")
    tensors = iter(present)
    streams, mix, weights, output, weight, scale, bias = (None if old is None else next(tensors) for old in given)
    assert streams is not None
    assert bias is not None
    out: tuple[Tensor, ...] = ()
    if mix is not None and weights is not None and output is not None:
        streams = plain_streams.write(streams, mix, weights, output)
        out = (streams,)
    with use("plain"):
        return *out, *plain_streams.connection(streams, weight, scale, bias, read_offset, epsilon, PLAIN[form])


_with_gradient(connect, _connect_backward, _connect_setup)


# Reading with weights that all tokens share
# ----------------------------------------------------------------------------------------------------------------------


def _fake_read_shared(streams: Tensor, weights: Tensor) -> Tensor:
    return streams.new_empty(streams.shape[0], streams.shape[2])


def _fake_read_shared_backward(grad: Tensor, streams: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    grad_x = torch.empty_like(streams, memory_format=torch.contiguous_format)
    return grad_x, torch.empty_like(weights, memory_format=torch.contiguous_format)


@_operator(_fake_read_shared)
def read_shared(streams: Tensor, weights: Tensor) -> Tensor:
    """Streams (n, d, c), weights (d) -> branch input (n, c)."""
    sizes = _stream_sizes(streams)
    branch_input = _fake_read_shared(streams, weights)
    call("sum", {"x": streams, "weights": weights}, {"input": branch_input}, **sizes, back=0)
    return branch_input


@_operator(_fake_read_shared_backward)
def read_shared_backward(grad: Tensor, streams: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients at streams and weights."""
    sizes = _stream_sizes(streams)
    grad_x, grad_weights = _fake_read_shared_backward(grad, streams, weights)
    call(
        "sum",
        {"x": streams, "weights": weights, "input": grad},
        {"grad_x": grad_x, "grad_weights": grad_weights},
        **sizes,
        back=1,
    )
    return grad_x, grad_weights


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _read_shared_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        return tuple(_differentiable(plain_streams.read, ctx.saved_tensors, [grad]))
    return read_shared_backward(grad, *ctx.saved_tensors)


_with_gradient(read_shared, _read_shared_backward, _save_inputs)


# Writing
# ----------------------------------------------------------------------------------------------------------------------


def _fake_write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    return torch.empty_like(streams, memory_format=torch.contiguous_format)


def _fake_write_backward(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x, grad_mix, grad_weights, grad_y = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (streams, mix, weights, output)
    )
    return grad_x, grad_mix, grad_weights, grad_y


def _write_sizes(streams: Tensor, mix: Tensor) -> dict[str, Any]:
    sizes = _stream_sizes(streams)
    tokens = sizes["axes"]["tokens"]
    sizes["matrices"], sizes["axes"]["matrices"] = (1, ()) if mix.dim() == 2 else (sizes["tokens"], tokens)
    return sizes


@_operator(_fake_write)
def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Streams (*n, d, c), mix (*n, d, d), weights (*n, d), output (*n, c) -> streams (*n, d, c).

    Mix (d, d) and weights (d) are those of all tokens.
    """
    sizes = _write_sizes(streams, mix)
    out = streams.new_empty(streams.shape)
    inputs = {"x": streams, "mix": mix, "weights": weights, "y": output}
    call("write", inputs, {"out": out}, **sizes, back=0)
    return out


@_operator(_fake_write_backward)
def write_backward(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients at streams, mix, weights and output."""
    sizes = _write_sizes(streams, mix)
    grad_x, grad_mix, grad_weights, grad_y = _fake_write_backward(grad, streams, mix, weights, output)
    call(
        "write",
        {"x": streams, "mix": mix, "weights": weights, "y": output, "out": grad},
        {"grad_x": grad_x, "grad_mix": grad_mix, "grad_weights": grad_weights, "grad_y": grad_y},
        **sizes,
        back=1,
    )
    return grad_x, grad_mix, grad_weights, grad_y


def _write_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        return tuple(_differentiable(plain_streams.write, ctx.saved_tensors, [grad]))
    return write_backward(grad, *ctx.saved_tensors)


_with_gradient(write, _write_backward, _save_inputs)
