"""The compiled operations as torch sees them: custom operators with fakes and gradients, so that torch.compile,
torch.export and autograd know them. C++ does them on the CPU, in float32, and Triton on CUDA, where streams may be of
half precision.

d = num_streams, s = expressivity, p = number of logits, c = channels, k = 2d + p
"""
# No `from __future__ import annotations` here: torch makes the operators' schemas of the annotations themselves.

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gomhc.kernels import orthostochastic as plain
from gomhc.kernels.library import call
from gomhc.kernels.precision import without_autocast

# The map's operators are registered piece by piece: what torch.library.custom_op wraps around a call takes as long as
# the map of a thousand matrices.
_library = torch.library.Library("gomhc", "FRAGMENT")


def _operator(function: Callable[..., Tensor]) -> Any:
    """The operator gomhc::<name of the function>, which is its version for the CPU."""
    name, schema = function.__name__, torch.library.infer_schema(function, mutates_args=())
    _library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    _library.impl(name, function, "CPU")
    return getattr(torch.ops.gomhc, name).default


@_operator
def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) -> (*batch, d, d)."""
    logits = logits.contiguous()
    matrix = logits.new_empty(*logits.shape[:-1], num_streams, num_streams)
    call("map", logits=logits, out=matrix, count=logits.shape[:-1].numel(), d=num_streams, s=expressivity)
    return matrix


@_operator
def orthostochastic_backward(logits: Tensor, grad: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """The gradient at the logits, from that at the matrix; nothing is kept from forward but the logits."""
    logits, grad = logits.contiguous(), grad.contiguous()
    out = torch.empty_like(logits)
    call("map", logits=logits, grad=grad, out=out, count=logits.shape[:-1].numel(), d=num_streams, s=expressivity)
    return out


def _fake_map(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], num_streams, num_streams)


def _fake_map_backward(logits: Tensor, grad: Tensor, num_streams: int, expressivity: int) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


class _Map(torch.autograd.Function):
    """The map with its gradient, around the operator itself."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.num_streams, ctx.expressivity = num_streams, expressivity
        with torch._C._AutoDispatchBelowAutograd():
            matrix: Tensor = orthostochastic(logits, num_streams, expressivity)
        return matrix

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the plain version has all of them
            matrix = plain.orthostochastic(logits, ctx.num_streams, ctx.expressivity)
            return torch.autograd.grad(matrix, logits, grad, create_graph=True)[0], None, None
        return orthostochastic_backward(logits, grad, ctx.num_streams, ctx.expressivity), None, None


_library.impl("orthostochastic", _Map.apply, "Autograd")
torch.library.register_fake("gomhc::orthostochastic", _fake_map)
torch.library.register_fake("gomhc::orthostochastic_backward", _fake_map_backward)


@torch.library.custom_op("gomhc::read", mutates_args=(), device_types="cpu")
def read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Streams (n, d, c), weight (k, d c), scale and bias (k) -> branch input (n, c), write (n, d), mix logits (n, p).

    Then what backward needs: the projection (n, k) and one over the root mean square (n).
    """
    streams, scale, bias = streams.contiguous(), scale.contiguous(), bias.contiguous()
    n, d, c = streams.shape
    projection = _project(streams, weight)
    outputs = _read_outputs(streams, projection)
    names = ("input", "write", "mix", "inverse_rms")
    sizes = {"tokens": n, "d": d, "c": c, "k": len(bias), "offset": read_offset, "epsilon": epsilon}
    call(
        "read",
        x=streams,
        projection=projection,
        scale=scale,
        bias=bias,
        **dict(zip(names, outputs, strict=True)),
        **sizes,
    )
    branch_input, write_weights, mix_logits, inverse_rms = outputs
    return branch_input, write_weights, mix_logits, projection, inverse_rms


def _read_outputs(streams: Tensor, projection: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, d, c = streams.shape
    shapes = ((n, c), (n, d), (n, projection.shape[1] - 2 * d), (n,))
    branch_input, *others = (streams.new_empty(shapes[0]), *(projection.new_empty(shape) for shape in shapes[1:]))
    write_weights, mix_logits, inverse_rms = others
    return branch_input, write_weights, mix_logits, inverse_rms


def _project(streams: Tensor, weight: Tensor) -> Tensor:
    with without_autocast(streams.device):
        return streams.flatten(1).float() @ weight.float().T


@read.register_fake
def _(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    projection = streams.new_empty(streams.shape[0], weight.shape[0], dtype=torch.float32)
    branch_input, write_weights, mix_logits, inverse_rms = _read_outputs(streams, projection)
    return branch_input, write_weights, mix_logits, projection, inverse_rms


@torch.library.custom_op("gomhc::read_backward", mutates_args=(), device_types="cpu")
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
    streams, scale, bias = streams.contiguous(), scale.contiguous(), bias.contiguous()
    n, d, c = streams.shape
    grad_x, grad_projection, grad_logits = (
        torch.empty_like(streams),
        torch.empty_like(projection),
        torch.empty_like(projection),
    )
    call(
        "read",
        x=streams,
        projection=projection,
        scale=scale,
        bias=bias,
        input=grad_input.contiguous(),
        write=grad_write.contiguous(),
        mix=grad_mix.contiguous(),
        inverse_rms=inverse_rms,
        grad_x=grad_x,
        grad_projection=grad_projection,
        grad_logits=grad_logits,
        tokens=n,
        d=d,
        c=c,
        k=len(bias),
        offset=read_offset,
    )
    return _through_projection(grad_x, grad_projection, grad_logits, streams, weight, projection, inverse_rms)


def _through_projection(
    grad_x: Tensor,
    grad_projection: Tensor,
    grad_logits: Tensor,
    streams: Tensor,
    weight: Tensor,
    projection: Tensor,
    inverse_rms: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradient at the streams with what the matrix product adds to it, and those at weight, scale and bias."""
    with without_autocast(streams.device):
        if streams.dtype == torch.float32:
            grad_x.flatten(1).addmm_(grad_projection, weight)
        else:
            grad_x.flatten(1).add_(grad_projection @ weight.float())
        grad_weight = grad_projection.T @ streams.flatten(1).float()
    grad_scale = (grad_logits * projection * inverse_rms[:, None]).sum(0)
    return grad_x, grad_weight.to(weight.dtype), grad_scale, grad_logits.sum(0)


@read_backward.register_fake
def _(
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
    contiguous = torch.contiguous_format
    grad_x = torch.empty_like(streams, memory_format=contiguous)
    return grad_x, weight.new_empty(weight.shape), scale.new_empty(scale.shape), bias.new_empty(bias.shape)


def _read_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.read_offset, _ = inputs
    *_, projection, inverse_rms = output
    ctx.mark_non_differentiable(projection, inverse_rms)
    ctx.save_for_backward(*tensors, projection, inverse_rms)


def _read_backward(
    ctx: Any, grad_input: Tensor, grad_write: Tensor, grad_mix: Tensor, *_: Tensor
) -> tuple[Tensor | None, ...]:
    grads = read_backward(grad_input, grad_write, grad_mix, *ctx.saved_tensors, ctx.read_offset)
    return *grads, None, None


read.register_autograd(_read_backward, setup_context=_read_setup)


@torch.library.custom_op("gomhc::write", mutates_args=(), device_types="cpu")
def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Streams (n, d, c), mix (n, d, d), weights (n, d), output (n, c) -> streams (n, d, c)."""
    x, mix, weights, y = (tensor.contiguous() for tensor in (streams, mix, weights, output))
    n, d, c = x.shape
    out = torch.empty_like(x)
    call("write", x=x, mix=mix, weights=weights, y=y, out=out, tokens=n, d=d, c=c)
    return out


@write.register_fake
def _(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    return torch.empty_like(streams, memory_format=torch.contiguous_format)


@torch.library.custom_op("gomhc::write_backward", mutates_args=(), device_types="cpu")
def write_backward(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients at streams, mix, weights and output."""
    grad, x, mix, weights, y = (tensor.contiguous() for tensor in (grad, streams, mix, weights, output))
    n, d, c = x.shape
    grad_x, grad_mix, grad_weights, grad_y = (torch.empty_like(tensor) for tensor in (x, mix, weights, y))
    call(
        "write",
        x=x,
        mix=mix,
        weights=weights,
        y=y,
        out=grad,
        grad_x=grad_x,
        grad_mix=grad_mix,
        grad_weights=grad_weights,
        grad_y=grad_y,
        tokens=n,
        d=d,
        c=c,
    )
    return grad_x, grad_mix, grad_weights, grad_y


@write_backward.register_fake
def _(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x, grad_mix, grad_weights, grad_y = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (streams, mix, weights, output)
    )
    return grad_x, grad_mix, grad_weights, grad_y


def _write_setup(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _write_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return write_backward(grad, *ctx.saved_tensors)


write.register_autograd(_write_backward, setup_context=_write_setup)


def _triton() -> Any:
    """Imported when a CUDA tensor first comes: Triton is not everywhere, and takes a while."""
    from gomhc.kernels import triton_kernels

    return triton_kernels


@torch.library.impl(_library, "orthostochastic", "CUDA")
def orthostochastic_triton(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """As above, by Triton."""
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    matrix: Tensor = _triton().orthostochastic_forward(flat, num_streams, expressivity)
    return matrix.reshape(*logits.shape[:-1], num_streams, num_streams)


@torch.library.impl(_library, "orthostochastic_backward", "CUDA")
def orthostochastic_backward_triton(logits: Tensor, grad: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """As above, by Triton."""
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    flat_grad = grad.reshape(len(flat), num_streams, num_streams)
    out: Tensor = _triton().orthostochastic_backward(flat, flat_grad, num_streams, expressivity)
    return out.reshape(logits.shape)


@read.register_kernel("cuda")
def read_triton(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As above, by Triton."""
    projection = _project(streams, weight)
    outputs = _triton().read_forward(streams, projection, scale, bias, read_offset, epsilon)
    branch_input, write_weights, mix_logits, inverse_rms = outputs
    return branch_input, write_weights, mix_logits, projection, inverse_rms


@read_backward.register_kernel("cuda")
def read_backward_triton(
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
    """As above, by Triton."""
    grads = (grad_input, grad_write, grad_mix)
    grad_x, grad_projection, grad_logits = _triton().read_backward(
        *grads, streams, projection, scale, bias, inverse_rms, read_offset
    )
    return _through_projection(grad_x, grad_projection, grad_logits, streams, weight, projection, inverse_rms)


@write.register_kernel("cuda")
def write_triton(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """As above, by Triton."""
    out: Tensor = _triton().write_forward(streams, mix, weights, output)
    return out


@write_backward.register_kernel("cuda")
def write_backward_triton(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As above, by Triton."""
    grad_x, grad_mix, grad_weights, grad_y = _triton().write_backward(grad, streams, mix, weights, output)
    return grad_x, grad_mix, grad_weights, grad_y
