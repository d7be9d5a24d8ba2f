"""Reading and writing in C++ without torch's operators, where nothing but numbers is wanted: no gradient and no graph.

A call of an operator, cold as it is between two matrix products, takes longer than a token takes in C++. The functions
here return None where a tensor is not as C++ takes it; the operator then makes it so, or says what is wrong.

d = num_streams, c = channels, k = number of logits of read, write and mix
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from gomhc.kernels.forms import LARGEST, parsed
from gomhc.kernels.library import ELEMENTS, TASKS, library

Before = tuple[Tensor, Tensor, Tensor]
"""Mix, weights and output that are to be written."""
_Connect, _Write = TASKS["connect"], TASKS["write"]
_Addresses = tuple[int | None, int | None, int | None, int | None]


def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor | None:
    """`ops.write`."""
    shape, dtype = streams.shape, streams.dtype
    if not _takes_streams(streams) or not _takes_before(shape, dtype, (mix, weights, output)):
        return None
    out = torch.empty(shape, dtype=dtype)
    tokens = shape[:-2].numel()
    task = _Write(
        *(streams.data_ptr(), mix.data_ptr(), weights.data_ptr(), output.data_ptr(), out.data_ptr()),
        *(None, None, None, None),  # gradients
        *(tokens, 1 if mix.dim() == 2 else tokens, shape[-1], shape[-2], ELEMENTS[dtype], 0),
    )
    _native().gomhc_write(task, torch.get_num_threads())
    return out


def connect(
    streams: Tensor,
    before: Before | None,
    weight: Tensor | None,
    scale: Tensor | None,
    bias: Tensor,
    read_offset: float,
    epsilon: float,
    form: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """`ops.connect`, without what backward needs; the streams that were read come first."""
    streams = streams.contiguous()  # at first they are one stream, expanded
    shape, dtype = streams.shape, streams.dtype
    if not _takes_streams(streams):
        return None
    batch, d, c = shape[:-2], shape[-2], shape[-1]
    num_streams, num_logits, parts = parsed(form)
    k = 2 * d + num_logits
    if num_streams != d or not _takes(bias, torch.float32, (k,)):
        return None
    tokens = batch.numel()
    own, num_own, weight_pointer, scale_pointer = torch.Size(), 1, None, None
    if weight is not None and scale is not None:
        if not _takes(weight, torch.float32, (k, d * c)) or not _takes(scale, torch.float32, (3,)):
            return None
        own, num_own, weight_pointer, scale_pointer = batch, tokens, weight.data_ptr(), scale.data_ptr()
    out, matrices = streams, 1
    written: _Addresses = (None, None, None, None)
    if before is not None:
        if not _takes_before(shape, dtype, before):
            return None
        mix, weights, output = before
        out, matrices = torch.empty(shape, dtype=dtype), 1 if mix.dim() == 2 else tokens
        written = mix.data_ptr(), weights.data_ptr(), output.data_ptr(), out.data_ptr()
    branch_input = torch.empty((*batch, c), dtype=dtype)
    new_weights = torch.empty((*own, d), dtype=torch.float32)
    new_mix = torch.empty((*own, d, d), dtype=torch.float32)
    task = _Connect(
        *(streams.data_ptr(), *written, weight_pointer, scale_pointer, bias.data_ptr()),
        *(branch_input.data_ptr(), new_weights.data_ptr(), new_mix.data_ptr()),
        *(None, None, None, None, None, None, None, None, None, None, None),  # what is kept for backward, and gradients
        *(parts, tokens, matrices, num_own, c, d, k, ELEMENTS[dtype], 0, read_offset, epsilon),
    )
    _native().gomhc_connect(task, torch.get_num_threads())
    return out, branch_input, new_weights, new_mix


def _native() -> Any:
    """The library, which is there where `dispatch.is_direct` says so."""
    return library()


def _takes_streams(streams: Tensor) -> bool:
    shape, dtype = streams.shape, streams.dtype
    sizes_fit = len(shape) >= 3 and 1 <= shape[-2] <= LARGEST and shape[-1] >= 1
    return sizes_fit and dtype in ELEMENTS and _takes(streams, dtype, shape)


def _takes_before(shape: torch.Size, dtype: torch.dtype, before: Before) -> bool:
    mix, weights, output = before
    batch, d = shape[:-2], shape[-2]
    own = () if mix.dim() == 2 else batch
    return (
        _takes(mix, torch.float32, (*own, d, d))
        and _takes(weights, torch.float32, (*own, d))
        and _takes(output, dtype, (*batch, shape[-1]))
    )


def _takes(tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
    """Whether this is a plain tensor with its numbers in memory as they are, of this dtype and shape."""
    return (
        tensor.shape == shape
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.is_contiguous()
        and type(tensor) in (Tensor, Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )
