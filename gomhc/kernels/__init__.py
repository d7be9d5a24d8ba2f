"""How is this operation computed fast here? One name an operation; the version is chosen for the tensors at hand.

`orthostochastic.py` and `streams.py` have the plain versions, which read as the equations and are the oracle of the
others: `batched.py` (pure torch), and `ops.py` on `library.py` (C++ in `native/`) and `triton_kernels.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gomhc.kernels import batched, ops
from gomhc.kernels import orthostochastic as plain_map
from gomhc.kernels import streams as plain_streams
from gomhc.kernels.dispatch import available, chosen, reasons, use
from gomhc.kernels.library import LARGEST

__all__ = ["available", "orthostochastic", "read", "reasons", "use", "write"]

FAST = ("native", "triton")


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) logits of go-mHC -> (*batch, d, d) doubly stochastic matrices, in their dtype."""
    backend = chosen(logits)
    if backend in FAST and num_streams * expressivity <= LARGEST:
        return ops.orthostochastic(logits, num_streams, expressivity)
    if backend == "batched":
        return batched.orthostochastic(logits, num_streams, expressivity)
    return plain_map.orthostochastic(logits, num_streams, expressivity)


def write(streams: Tensor, mix: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """out_i = sum_j mix_ij streams_j + weights_i output; streams (*batch, d, c), coefficients of a token or of all."""
    batch = streams.shape[:-2]
    if _compiled(streams, mix, weights, output) and mix.shape[:-2] == batch:
        flat = streams.flatten(0, -3), mix.flatten(0, -3), weights.flatten(0, -2), output.flatten(0, -2)
        return ops.write(*flat).reshape(streams.shape)
    return plain_streams.write(streams, mix, weights, output)


def read(
    streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, read_offset: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What the branch sees (*batch, c), the write weights (*batch, d) and the logits of the mix (*batch, p)."""
    *batch, d, c = streams.shape
    if _compiled(streams, weight, scale, bias):
        branch_input, weights, logits, *_ = ops.read(streams.flatten(0, -3), weight, scale, bias, read_offset, epsilon)
        shapes = ((*batch, c), (*batch, d), (*batch, len(bias) - 2 * d))
        branch_input, weights, logits = map(torch.Tensor.reshape, (branch_input, weights, logits), shapes)
        return branch_input, weights, logits
    return plain_streams.read_dynamic(streams, weight, scale, bias, read_offset, epsilon)


def _compiled(streams: Tensor, *others: Tensor) -> bool:
    """Whether there is a compiled version for these tensors; the one for the CPU takes float32 alone."""
    backend = chosen(streams, *others)
    dtypes = {tensor.dtype for tensor in (streams, *others)}
    fits = streams.dim() > 2 and streams.shape[-2] <= LARGEST
    return fits and (backend == "triton" or (backend == "native" and dtypes == {torch.float32}))
