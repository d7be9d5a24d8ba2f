r"""How is the go-mHC map computed fast where nothing is compiled? In torch, with the batch innermost.

    K = (I + A)^{-1} by Gauss and Jordan, all matrices at once;    backward: G_A = -2 K^T G_Q K^T

Every step is one operation on long rows of memory, where batched LAPACK walks from one small matrix to the next.
Without pivots the error grows with the square of the logits, which float64 has room for: results are float32 at most,
and so is the arithmetic while all logits are small.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

FLOAT_LIMIT = 6.0
"""The largest logit that float32 is enough for; sums are then made exact by one division of rows and one of columns."""
ENTRIES = 2**20
"""Of the matrices that are worked on at once, so that their memory is used again and not asked for anew."""


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) -> (*batch, d, d), as `gomhc.kernels.orthostochastic` has it."""
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    chunk_size = max(1, ENTRIES // (num_streams * expressivity) ** 2)
    chunks = [_Orthostochastic.apply(chunk, num_streams, expressivity)[0] for chunk in flat.split(chunk_size)]
    matrix = torch.cat(chunks) if len(chunks) > 1 else chunks[0]
    return matrix.reshape(*logits.shape[:-1], num_streams, num_streams)


class _Orthostochastic(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, num_streams: int, expressivity: int) -> tuple[Tensor, Tensor]:
        k = _inverse(logits.T.to(_precision(logits)), num_streams * expressivity)
        matrix = k.new_zeros(num_streams, num_streams, len(logits))
        for a, b in product(range(expressivity), repeat=2):
            q = 2 * k[a::expressivity, b::expressivity]
            if a == b:
                q.diagonal().sub_(1)
            matrix.addcmul_(q, q, value=1 / expressivity)
        if matrix.dtype == torch.float32:  # divide out what it left of the sums: of an error e stays e squared
            matrix.div_(matrix.sum(1, keepdim=True)).div_(matrix.sum(0, keepdim=True))
        return matrix.permute(2, 0, 1).to(logits.dtype, memory_format=torch.contiguous_format), k

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: tuple[Tensor, Tensor]) -> None:
        logits, ctx.num_streams, ctx.expressivity = inputs
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (k,) = ctx.saved_tensors
        blocks = k.unflatten(0, (ctx.num_streams, -1)).unflatten(2, (ctx.num_streams, -1))
        grad = grad.permute(1, 2, 0).to(k.dtype)
        g = (blocks * (grad * (4 / ctx.expressivity))[:, None, :, None]).flatten(2, 3).flatten(0, 1)  # 2/s times 2K,
        own = grad.diagonal().repeat_interleave(ctx.expressivity, dim=1) * (2 / ctx.expressivity)
        g.diagonal().sub_(own)  # and I from it
        x = _product(k, _product(g.transpose(0, 1), k.transpose(0, 1))).flatten(0, 1)
        upper, lower = _triangles(len(k), k.device)
        return (x[lower] - x[upper]).mul_(2).T.to(ctx.dtype, memory_format=torch.contiguous_format), None, None


def _precision(logits: Tensor) -> torch.dtype:
    """Float32 where all logits are small, which is looked up on the CPU and not while torch.compile traces."""
    looked_up = logits.device.type == "cpu" and not torch.compiler.is_compiling() and logits.numel() > 0
    small = looked_up and logits.dtype == torch.float32 and logits.abs().max().item() <= FLOAT_LIMIT
    return torch.float32 if small else torch.float64


def _inverse(z: Tensor, n: int) -> Tensor:
    """(n, n, batch): the inverse of I + A, from (p, batch)."""
    upper, lower = _triangles(n, z.device)
    k = z.new_zeros(n * n, z.shape[-1]).index_copy_(0, upper, z).index_copy_(0, lower, -z)
    k[:: n + 1] = 1
    k = k.unflatten(0, (n, n))
    for c in range(n):
        inverse = k[c, c].reciprocal()
        pivot_row = k[c] * inverse
        pivot_row[c] = inverse
        factor = k[:, c].clone()
        k[:, c] = 0
        k.addcmul_(factor[:, None], pivot_row[None, :], value=-1)
        k[c] = pivot_row
    return k


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a^T b for each matrix of the batch: the sum over c of a[c, i] b[c, j]."""
    total = a[0, :, None] * b[0, None]
    for c in range(1, len(b)):
        total.addcmul_(a[c, :, None], b[c, None])
    return total


def _triangles(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the entries above the diagonal lie in a flattened matrix, and their mirror images."""
    row, column = torch.triu_indices(n, n, offset=1, device=device)
    return row * n + column, column * n + row
