"""Operations that have fast versions. Each call chooses a version by the device and dtype of its tensors.

`plain_map.py` and `plain_streams.py` have the plain versions, which read like the equations and which the others are
tested against: `batched.py` (pure torch), `ops.py` on `library.py` (C++ in `native/`), `triton_ops.py` on `triton/`,
and `direct.py`, which calls C++ without a torch operator if no gradient is needed.

Every version is batch-invariant: a token's results and gradients are the same bit for bit, for any other tokens in the
batch, any position in the batch and any number of threads. In C++ and Triton this holds by construction. Read and write
in pure torch use BLAS, which does not promise it; there it is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gomhc.kernels import batched, direct, forms, ops, plain_map, plain_streams, triton_ops
from gomhc.kernels.dispatch import Backend, available, chosen, is_direct, reasons, use
from gomhc.kernels.forms import LARGEST
from gomhc.kernels.library import ELEMENTS
from gomhc.kernels.precision import at_least_float32

__all__ = ["available", "connect", "mixing", "orthostochastic", "read", "read_shared", "reasons", "use", "write"]

FAST = ("native", "triton")


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """Map the logits of go-mHC to doubly stochastic matrices of the same dtype.

    Args:
        logits: logits of any real floating-point dtype; half precision is computed in float32.
        num_streams: number of rows of a matrix (d).
        expressivity: number of rows of a block (s).

    Shape:
        - logits: (*batch, p) with n = d s and p = n (n - 1) / 2
        - returns: (*batch, d, d)

    Example::

        >>> gomhc.kernels.orthostochastic(torch.randn(10, 28), num_streams=4, expressivity=2).shape
        torch.Size([10, 4, 4])
    """
    n = num_streams * expressivity
    if num_streams < 1 or expressivity < 1:
        raise ValueError(f"num_streams and expressivity must be at least 1, got {num_streams} and {expressivity}")
    _require("logits", logits, logits.shape[:-1], n * (n - 1) // 2)
    if chosen(logits) == "batched":
        return batched.orthostochastic(logits.float(), num_streams, expressivity).to(logits.dtype)
    plain = partial(plain_map.orthostochastic, num_streams=num_streams, expressivity=expressivity)
    return mixing(logits, forms.single("go", num_streams, expressivity), plain)


def mixing(logits: Tensor, form: str | None, plain: Callable[[Tensor], Tensor]) -> Tensor:
    """Map logits to matrices of the same dtype.

    Args:
        logits: logits of any real floating-point dtype; the compiled version computes half precision in float32.
        form: the map of the compiled version, as `gomhc.kernels.forms` writes it; None if there is none.
        plain: the same map in plain torch, which is used if there is no compiled version.

    Shape:
        - logits: (*batch, p)
        - returns: (*batch, d, d)

    Example::

        >>> mixing = gomhc.Sinkhorn(num_streams=4)
        >>> gomhc.kernels.mixing(torch.randn(10, 16), mixing.kernel, mixing.matrix).shape
        torch.Size([10, 4, 4])
    """
    if form is None or not _has(chosen(logits), form):
        return plain(logits)
    if not torch.compiler.is_compiling():  # which has no second derivatives
        ops.PLAIN.setdefault(form, plain)
    return ops.mixing(logits.float(), form).to(logits.dtype)


def _has(backend: Backend, form: str) -> bool:
    return backend == "native" or (backend == "triton" and triton_ops.has_map(form))


def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Mix the streams and add a branch's output: out_i = sum_j mix_ij streams_j + weights_i output.

    Args:
        streams: the residual streams.
        mix: weight of each old stream (column) in each new stream (row).
        weights: weight of the output in each stream.
        output: the output of the branch.

    Shape:
        - streams: (*batch, d, c)
        - mix: (*batch, d, d), and weights: (*batch, d), or without batch if they are the same for all tokens
        - output: (*batch, c)
        - returns: (*batch, d, c), in the dtype of the streams

    Example::

        >>> streams, mix = torch.randn(10, 4, 8), torch.eye(4)
        >>> gomhc.kernels.write(streams, mix, weights=torch.ones(4), output=torch.randn(10, 8)).shape
        torch.Size([10, 4, 8])
    """
    if is_direct():
        out = direct.write(streams, mix, weights, output)
        if out is not None:
            return out
    batch, d, c = _stream_shape(streams)
    if (mix.shape, weights.shape, output.shape) != ((*batch, d, d), (*batch, d), (*batch, c)):  # or one by one, slower
        _require("mix", mix, batch, d, d, static=True)
        _require("weights", weights, batch, d, static=True)
        _require("output", output, batch, c)
    _require_one_device(streams, mix, weights, output)
    backend = _compiled(streams, mix, weights, output)
    if backend is None:
        return plain_streams.write(streams, mix, weights, output)
    return _compiled_write(backend, streams, mix, weights, output)


def _compiled_write(backend: Backend, streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    shape, dtype = streams.shape, streams.dtype
    shared = mix.dim() == 2 and weights.dim() == 1
    if not shared and (mix.dim() < streams.dim() or weights.dim() < streams.dim() - 1):
        mix, weights = mix.expand(*shape[:-2], *mix.shape[-2:]), weights.expand(*shape[:-2], weights.shape[-1])
    if output.dtype != dtype:
        wide = torch.promote_types(dtype, output.dtype)
        streams, output = streams.to(wide), output.to(wide)
    if not mix.dtype == weights.dtype == torch.float32:
        mix, weights = mix.float(), weights.float()
    if len(shape) > 3 and backend != "native":  # which takes any number of dimensions
        streams, output = streams.flatten(0, -3), output.flatten(0, -2)
        if not shared:
            mix, weights = mix.flatten(0, -3), weights.flatten(0, -2)
    return ops.write(streams, mix, weights, output).to(dtype).reshape(shape)


def read_shared(streams: Tensor, weights: Tensor) -> Tensor:
    """Read the streams with weights that all tokens share: sum_j weights_j streams_j.

    Args:
        streams: the residual streams.
        weights: weight of each stream.

    Shape:
        - streams: (*batch, d, c), weights: (d,)
        - returns: (*batch, c), in the dtype of the streams

    Example::

        >>> gomhc.kernels.read_shared(torch.randn(10, 4, 8), torch.ones(4)).shape
        torch.Size([10, 8])
    """
    batch, d, c = _stream_shape(streams)
    _require("weights", weights, torch.Size(), d)
    _require_one_device(streams, weights)
    if _compiled(streams, weights):
        return ops.read_shared(streams.flatten(0, -3), weights.float()).reshape(*batch, c)
    return plain_streams.read(streams, weights)


def read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Read the streams with coefficients that are computed from them, by equations 2 to 4 of the paper.

    Args:
        streams: the residual streams.
        weight: W of the equations, with the rows of read, write and mix in this order.
        scale: a of the equations: how strongly the streams steer the coefficients.
        bias: b of the equations: the logits that all tokens share.
        read_offset: added to the read weights (DeepSeek-V4's `hc_eps`).
        epsilon: added to the mean square of the streams.

    Shape:
        - streams: (*batch, d, c), weight: (k, d c), scale and bias: (k,) with k = 2 d + p
        - returns: the branch's input (*batch, c), write weights (*batch, d), logits of the mix (*batch, p)

    Example::

        >>> streams, weight = torch.randn(10, 4, 8), torch.randn(36, 32)  # 36 = 2 * 4 + 28
        >>> scale, bias = torch.ones(36), torch.zeros(36)
        >>> branch_input, write, mix_logits = gomhc.kernels.read(streams, weight, scale, bias, 0.0, 1e-6)
        >>> mix_logits.shape
        torch.Size([10, 28])
    """
    batch, d, c = _stream_shape(streams)
    if bias.dim() != 1 or len(bias) < 2 * d:
        raise ValueError(f"bias must have the shape (2 d + p,) with d = {d} streams, got {tuple(bias.shape)}")
    k = len(bias)
    _require("weight", weight, torch.Size(), k, d * c)
    _require("scale", scale, torch.Size(), k)
    _require("bias", bias, torch.Size(), k)
    _require_one_device(streams, weight, scale, bias)
    if _compiled(streams, weight, scale, bias):
        if streams.is_cpu:
            weight, scale, bias = weight.float(), scale.float(), bias.float()
        branch_input, weights, logits, *_ = ops.read(streams.flatten(0, -3), weight, scale, bias, read_offset, epsilon)
        shapes = ((*batch, c), (*batch, d), (*batch, k - 2 * d))
        branch_input, weights, logits = map(torch.Tensor.reshape, (branch_input, weights, logits), shapes)
        return branch_input, weights, logits
    return plain_streams.read_dynamic(streams, weight, scale, bias, read_offset, epsilon)


def connect(
    streams: Tensor,
    before: tuple[Tensor, Tensor, Tensor] | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    read_offset: float,
    epsilon: float,
    form: str | None,
    mixing: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute a whole connection: the pending write of the previous one, the read, and the map to the mix.

    This is `write`, `read` and the mixing, one after the other. C++ does it in one call and one pass over the streams.

    Args:
        streams: the residual streams, before the pending write if there is one.
        before: mix, weights and output of a pending write, as for `write`; or None.
        weight: W, as for `read`; None if all tokens share the coefficients.
        scale: one number each for read, write and mix; None if all tokens share the coefficients.
        bias: b, as for `read`.
        read_offset: added to the read weights.
        epsilon: added to the mean square of the streams.
        form: form of the map, as for the function `mixing`.
        mixing: the map from logits (*batch, p) to matrices (*batch, d, d).

    Shape:
        - streams: (*batch, d, c), weight: (k, d c), scale: (3,), bias: (k,)
        - returns: the streams after the pending write (*batch, d, c), the branch's input (*batch, c), write weights
          (*batch, d), the mix (*batch, d, d); the last two without batch if all tokens share them

    Example::

        >>> weight, scale, bias = torch.randn(24, 32), torch.ones(3), torch.zeros(24)  # 24 = 2 * 4 + 16
        >>> mixing = gomhc.Sinkhorn(num_streams=4)
        >>> settings = 0.0, 1e-6, mixing.kernel, mixing
        >>> streams, _, _, mix = gomhc.kernels.connect(torch.randn(1, 4, 8), None, weight, scale, bias, *settings)
        >>> mix.shape
        torch.Size([1, 4, 4])
    """
    if form is not None and is_direct():
        connected = direct.connect(streams, before, weight, scale, bias, read_offset, epsilon, form)
        if connected is not None:
            return connected
    given = (*(before or ()), *((weight, scale) if weight is not None and scale is not None else ()), bias)
    _stream_shape(streams)
    _require_one_device(streams, *given)
    is_native = _compiled(streams, *given) == "native"
    if before is not None and (form is None or not is_native or not _fits(streams, *before)):
        written = write(streams, *before)
        return connect(written, None, weight, scale, bias, read_offset, epsilon, form, mixing)
    if form is None or not is_native:
        return streams, *_connect_in_steps(streams, weight, scale, bias, read_offset, epsilon, mixing)
    mix, weights, output = before or (None, None, None)
    if any(value is not None and value.dtype != torch.float32 for value in (weight, scale, bias)):
        bias, weight, scale = bias.float(), *(None if value is None else value.float() for value in (weight, scale))
    if not torch.compiler.is_compiling():  # which has no second derivatives
        ops.PLAIN.setdefault(form, mixing)
    arguments = (streams, mix, weights, output, weight, scale, bias, read_offset, epsilon, form)
    out, branch_input, write_weights, new_mix, *_ = ops.connect(*arguments)
    return streams if before is None else out, branch_input, write_weights, new_mix


def _fits(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> bool:
    """Whether the compiled connection takes what is to be written as it is; not if autocast has made the output."""
    return (
        output.dtype == streams.dtype
        and mix.dtype == weights.dtype == torch.float32
        and mix.dim() == weights.dim() + 1
        and mix.dim() in (2, streams.dim())
    )


def _connect_in_steps(
    streams: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    read_offset: float,
    epsilon: float,
    mixing: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    precision, d = at_least_float32(streams.dtype), streams.shape[-2]
    bias = bias.to(precision)
    if weight is None or scale is None:
        weights, write_weights, mix_logits = plain_streams.coefficients(bias, d, read_offset)
        return read_shared(streams, weights), write_weights, mixing(mix_logits)
    scale = plain_streams.spread_scale(scale.to(precision), d, len(bias))
    branch_input, write_weights, mix_logits = read(streams, weight, scale, bias, read_offset, epsilon)
    return branch_input, write_weights, mixing(mix_logits)


def _compiled(streams: Tensor, *others: Tensor) -> Backend | None:
    """The compiled version for these tensors, or None."""
    if streams.dim() < 3 or streams.shape[-2] > LARGEST:
        return None
    backend = chosen(streams, *others)
    fits = backend in FAST and ELEMENTS.keys() >= {tensor.dtype for tensor in (streams, *others)}
    return backend if fits else None


def _stream_shape(streams: Tensor) -> tuple[torch.Size, Any, Any]:
    if streams.dim() < 2 or min(streams.shape[-2:]) < 1 or not streams.is_floating_point():
        raise ValueError(
            f"streams must be real floating point, of shape (*batch, d, c) with d, c >= 1, got {streams.dtype} of "
            f"shape {tuple(streams.shape)}; gomhc.expand(x, d) makes streams from x (*batch, c)"
        )
    return streams.shape[:-2], streams.shape[-2], streams.shape[-1]


def _require(name: str, tensor: Tensor, batch: torch.Size, *shape: Any, static: bool = False) -> None:
    """Real floating point of this shape behind this batch, or behind none where `static`. Sizes may be symbolic."""
    fits = tensor.shape == (*batch, *shape) or (static and tensor.shape == shape)
    if not fits or not tensor.is_floating_point():
        expected = f"{(*batch, *shape)}{f' or {shape}' if static else ''}"
        raise ValueError(
            f"{name} must be real floating point of shape {expected}, got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )


def _require_one_device(*tensors: Tensor) -> None:
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        raise ValueError(f"all tensors must be on one device, got {', '.join(sorted(map(str, devices)))}")
