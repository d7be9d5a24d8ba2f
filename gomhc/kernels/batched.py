r"""How is the go-mHC map computed fast where nothing is compiled? In torch, with the batch innermost.

    K = (I + A)^{-1} by Gauss and Jordan, all matrices at once;    backward: G_A = -2 K^T G_Q K^T

Every step is one operation on long rows of memory, where batched LAPACK walks from one small matrix to the next.
Without pivots the error grows with the square of the logits, which float64 has room for: results are float32 at most,
and so is the arithmetic while all logits are small.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor

FLOAT_LIMIT = 6.0
"""The largest logit that float32 is enough for; sums are then made exact by one division of rows and one of columns."""
ENTRIES = 2**20
"""Of the matrices that are worked on at once."""
GROUPS = 8
"""That matrices are divided into, where they can be: a thread then works on memory that no other touches."""


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) -> (*batch, d, d), as `gomhc.kernels.orthostochastic` has it."""
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    matrix, _ = _Orthostochastic.apply(flat, num_streams, expressivity)
    return matrix.reshape(*logits.shape[:-1], num_streams, num_streams)


class _Orthostochastic(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, num_streams: int, expressivity: int) -> tuple[Tensor, Tensor]:
        n, precision = num_streams * expressivity, _precision(logits)
        matrix = logits.new_empty(len(logits), num_streams, num_streams)
        inverse = logits.new_empty(len(logits), n**2, dtype=precision)
        for z, m, k in zip(_chunks(logits, n), _chunks(matrix, n), _chunks(inverse, n), strict=True):
            k = _grouped(k, n)
            _invert(_innermost(z).to(precision), out=k)
            m.flatten(1).copy_(_block_norms(k, num_streams).flatten(1, 2).transpose(0, 1).flatten(1).T)
        return matrix, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.dtype, ctx.n = inputs[0].dtype, inputs[1] * inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (inverse,), n = ctx.saved_tensors, ctx.n
        grad_logits = grad.new_empty(len(grad), n * (n - 1) // 2, dtype=ctx.dtype)
        for k, g, z in zip(_chunks(inverse, n), _chunks(grad, n), _chunks(grad_logits, n), strict=True):
            x = _backward(_grouped(k, n), _innermost(g.flatten(1)).to(k.dtype).unflatten(0, g.shape[1:]))
            z.copy_(x.flatten(1).T)
        return grad_logits, None, None


def _chunks(x: Tensor, n: int) -> tuple[Tensor, ...]:
    """Views of a share of the batch each, so small that memory for its matrices is used again."""
    return x.split(max(1, ENTRIES // n**2))


def _grouped(x: Tensor, n: int) -> Tensor:
    """(groups, n, n, batch / groups), of the same memory."""
    return x.view(_num_groups(len(x)), n, n, -1)


def _innermost(x: Tensor) -> Tensor:
    """(batch, ...) -> (..., groups, batch / groups)"""
    return x.T.contiguous().unflatten(1, (_num_groups(len(x)), -1))


def _num_groups(batch: int) -> int:
    """As many as divide the batch."""
    return math.gcd(batch, GROUPS)


def _precision(logits: Tensor) -> torch.dtype:
    """Float32 where all logits are small, which is looked up on the CPU and not while torch.compile traces."""
    looked_up = logits.device.type == "cpu" and not torch.compiler.is_compiling() and logits.numel() > 0
    small = looked_up and logits.dtype == torch.float32 and logits.abs().max().item() <= FLOAT_LIMIT
    return torch.float32 if small else torch.float64


def _invert(z: Tensor, *, out: Tensor) -> None:
    """(groups, n, n, batch): the inverse of I + A, from (p, groups, batch)."""
    n = out.shape[1]
    upper, lower = _triangles(n, z.device)
    flat = out.flatten(1, 2).transpose(0, 1)
    flat[upper] = z
    flat[lower] = -z
    flat[:: n + 1] = 1
    for c in range(n):
        pivot = out[:, c, c].clone()
        row, column = out[:, c] / pivot[:, None], out[:, :, c].clone()
        row[:, c] = (pivot + 1) / pivot
        column[:, c] -= 1
        out.addcmul_(column[:, :, None], row[:, None], value=-1)


def _block_norms(k: Tensor, num_streams: int) -> Tensor:
    """(groups, d, d, batch): the squares of Q = 2K - I, summed over the blocks of s x s and divided by s."""
    s = k.shape[1] // num_streams
    matrix = k.new_zeros(len(k), num_streams, num_streams, k.shape[-1])
    for a, b in product(range(s), repeat=2):
        q = 2 * k[:, a::s, b::s]
        if a == b:
            q.diagonal(dim1=1, dim2=2).sub_(1)
        matrix.addcmul_(q, q, value=1 / s)
    if matrix.dtype == torch.float32:  # divide out what it left of the sums: of an error e stays e squared
        matrix.div_(matrix.sum(1, keepdim=True)).div_(matrix.sum(2, keepdim=True))
    return matrix


def _backward(k: Tensor, grad: Tensor) -> Tensor:
    """(p, groups, batch): the skew part of K^T G_Q K^T, where G_Q = 2/s (2K - I) times the gradient of the block."""
    n = k.shape[1]
    s = n // len(grad)
    grad = grad.movedim(2, 0)
    gk, x = torch.zeros_like(k), torch.zeros_like(k)
    for c in range(n):
        column = k[:, :, c]
        g = (column.unflatten(1, (-1, s)) * grad[:, :, None, c // s]).flatten(1, 2).mul_(4 / s)
        g[:, c].sub_(grad[:, c // s, c // s], alpha=2 / s)
        gk.addcmul_(g[:, :, None], column[:, None])
    for c in range(n):
        x.addcmul_(k[:, c, :, None], gk[:, c, None])
    upper, lower = _triangles(n, k.device)
    x = x.flatten(1, 2).transpose(0, 1)
    return (x[lower] - x[upper]).mul_(2)


def _triangles(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the entries above the diagonal lie in a flattened matrix, and their mirror images."""
    row, column = torch.triu_indices(n, n, offset=1, device=device)
    return row * n + column, column * n + row
