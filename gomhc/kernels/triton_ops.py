"""The operators on CUDA: Triton kernels, or plain torch where a kernel cannot be compiled or launched.

An operator whose kernel raises warns once and is computed in torch from then on. With TRITON_INTERPRET=1 the same
functions take tensors on the CPU. d = num_streams, p = number of logits, c = channels, k = 2d + p
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gomhc.kernels import ops, plain_streams
from gomhc.kernels.dispatch import use
from gomhc.kernels.forms import COMPOSITES, LARGEST
from gomhc.kernels.plain_gradients import gradients

MOST_PERMUTED = 6
"""A program holds the weights of all permutations: 720 of six streams."""

_failed: set[str] = set()
"""Names of operators whose kernels raised."""


def _on_cuda(operator: Any, instead: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the operator's version for CUDA, and `instead` what is called where it raises."""
    name = str(operator.name())

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if name not in _failed:
                try:
                    return function(*arguments)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:  # Triton's errors have no base class of their own
                    _failed.add(name)
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]
                    warnings.warn(f"the Triton kernel of {name} failed ({reason}); torch takes over", stacklevel=2)
            return instead(*arguments)

        ops.for_cuda(operator, run)
        return function

    return register


# The map
# ----------------------------------------------------------------------------------------------------------------------


def has_map(form: str) -> bool:
    """Whether there are Triton kernels for all parts of this form."""
    return all(_has_part(*part.split(":")) for part in form.split(" "))


def _has_part(kind: str, num_streams: str, number: str, _: str) -> bool:
    if kind == "go":
        return int(num_streams) * int(number) <= LARGEST
    if kind == "permutations":
        return int(num_streams) <= MOST_PERMUTED
    return kind in ("sinkhorn", "sinkhorn-linear", "sinkhorn-v4", *COMPOSITES)


def _plain_mixing(logits: Tensor, form: str) -> Tensor:
    with use("plain"):
        return ops.PLAIN[form](logits)


def _plain_mixing_backward(logits: Tensor, grad: Tensor, form: str) -> Tensor:
    with use("plain"):
        return gradients(ops.PLAIN[form], [logits], [grad])[0]


@_on_cuda(ops.mixing, _plain_mixing)
def mixing(logits: Tensor, form: str) -> Tensor:
    """(*batch, p) -> (*batch, d, d), by the map of this form (forms.py)."""
    from gomhc.kernels.triton import triton_mixings  # here, as everywhere below: it takes a while, and Triton

    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    matrix = triton_mixings.forward(flat, triton_mixings.tree(form))
    return matrix.reshape(*logits.shape[:-1], *matrix.shape[1:])


@_on_cuda(ops.mixing_backward, _plain_mixing_backward)
def mixing_backward(logits: Tensor, grad: Tensor, form: str) -> Tensor:
    """The gradient at the logits, from that at the matrix."""
    from gomhc.kernels.triton import triton_mixings

    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    flat_grad = grad.reshape(len(flat), *grad.shape[-2:])
    return triton_mixings.backward(flat, flat_grad, triton_mixings.tree(form)).reshape(logits.shape)


# Reading
# ----------------------------------------------------------------------------------------------------------------------


def _plain_read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    outputs = plain_streams.read_dynamic(streams, weight, scale, bias, read_offset, epsilon)
    projection, mean_square = plain_streams.project(streams, weight)
    return *outputs, projection, torch.rsqrt(mean_square + epsilon)[:, 0]


def _plain_read_backward(
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
) -> tuple[Tensor, ...]:
    epsilon = inverse_rms[:, None] ** -2 - plain_streams.project(streams, weight)[1]

    def function(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projection, mean_square = plain_streams.project(x, w)
        logits = projection * torch.rsqrt(mean_square + epsilon) * a + b
        weights, write_weights, mix_logits = plain_streams.coefficients(logits, x.shape[-2], read_offset)
        return plain_streams.read(x, weights), write_weights, mix_logits

    return gradients(function, (streams, weight, scale, bias), (grad_input, grad_write, grad_mix))


@_on_cuda(ops.read, _plain_read)
def read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Streams (n, d, c), weight (k, d c), scale and bias (k) -> branch input (n, c), write (n, d), mix logits (n, p).

    Then what backward needs: the projection (n, k) and one over the root mean square (n).
    """
    from gomhc.kernels.triton import triton_product, triton_streams

    projection = triton_product.project(streams.flatten(1), weight)
    outputs = triton_streams.read_forward(streams, projection, scale, bias, read_offset, epsilon)
    branch_input, write_weights, mix_logits, inverse_rms = outputs
    return branch_input, write_weights, mix_logits, projection, inverse_rms


@_on_cuda(ops.read_backward, _plain_read_backward)
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
    from gomhc.kernels.triton import triton_product, triton_streams

    grads = (grad_input, grad_write, grad_mix)
    grad_x, grad_projection, grad_logits = triton_streams.read_backward(
        *grads, streams, projection, scale, bias, inverse_rms, read_offset
    )
    triton_product.add_back_(grad_x.flatten(1), grad_projection, weight)
    saved = (streams, weight, scale, bias, projection, inverse_rms)
    return grad_x, *ops.parameter_gradients(grad_projection, grad_logits, *saved)


# Reading with weights that all tokens share
# ----------------------------------------------------------------------------------------------------------------------


def _plain_read_shared_backward(grad: Tensor, streams: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
    return gradients(plain_streams.read, (streams, weights), [grad])


@_on_cuda(ops.read_shared, plain_streams.read)
def read_shared(streams: Tensor, weights: Tensor) -> Tensor:
    """Streams (n, d, c), weights (d) -> branch input (n, c)."""
    from gomhc.kernels.triton import triton_streams

    return triton_streams.read_shared_forward(streams, weights)


@_on_cuda(ops.read_shared_backward, _plain_read_shared_backward)
def read_shared_backward(grad: Tensor, streams: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients at streams and weights."""
    from gomhc.kernels.triton import triton_streams

    return triton_streams.read_shared_backward(grad, streams, weights)


# Writing
# ----------------------------------------------------------------------------------------------------------------------


def _plain_write_backward(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, ...]:
    return gradients(plain_streams.write, (streams, mix, weights, output), [grad])


@_on_cuda(ops.write, plain_streams.write)
def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Streams (n, d, c), mix (n, d, d) or (d, d), weights (n, d) or (d), output (n, c) -> streams (n, d, c)."""
    from gomhc.kernels.triton import triton_streams

    return triton_streams.write_forward(streams, mix, weights, output)


@_on_cuda(ops.write_backward, _plain_write_backward)
def write_backward(
    grad: Tensor, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients at streams, mix, weights and output."""
    from gomhc.kernels.triton import triton_streams

    return triton_streams.write_backward(grad, streams, mix, weights, output)
