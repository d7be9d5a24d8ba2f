r"""How is the go-mHC map computed fast where nothing is compiled? In torch, with the batch innermost.

    K = (I + A)^{-1} by Gauss and Jordan, all matrices at once;    backward: G_A = -2 K^T G_Q K^T

Every step is one operation on long rows of memory, where batched LAPACK walks from one small matrix to the next.
Without pivots the error grows with the square of the logits, which float64 has room for: results are float32 at most.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 2048
"""Matrices that are worked on at once, so that they stay in the cache."""


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) -> (*batch, d, d), as `gomhc.kernels.orthostochastic` has it."""
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    matrix: Tensor = _Orthostochastic.apply(flat, num_streams, expressivity)
    return matrix.reshape(*logits.shape[:-1], num_streams, num_streams)


class _Orthostochastic(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
        chunks = [_forward(chunk, num_streams, expressivity) for chunk in logits.split(CHUNK)]
        return torch.cat(chunks) if chunks else logits.new_zeros(0, num_streams, num_streams)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        logits, ctx.num_streams, ctx.expressivity = inputs
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (logits,) = ctx.saved_tensors
        pairs = zip(logits.split(CHUNK), grad.split(CHUNK), strict=True)
        chunks = [_backward(*pair, ctx.num_streams, ctx.expressivity) for pair in pairs]
        return torch.cat(chunks) if chunks else torch.zeros_like(logits), None, None


def _forward(logits: Tensor, d: int, s: int) -> Tensor:
    q = _rotation(_inverse(logits, d * s))
    return (q.square_().unflatten(0, (d, s)).unflatten(2, (d, s)).sum((1, 3)) / s).permute(2, 0, 1).to(logits.dtype)


def _backward(logits: Tensor, grad: Tensor, d: int, s: int) -> Tensor:
    k = _inverse(logits, d * s)
    spread = grad.permute(1, 2, 0).double().repeat_interleave(s, 0).repeat_interleave(s, 1)
    g = spread.mul_(_rotation(k)).mul_(2 / s)
    x = _product(k.transpose(0, 1), _product(g, k.transpose(0, 1)))
    row, column = torch.triu_indices(d * s, d * s, offset=1, device=logits.device)
    return (x[column, row] - x[row, column]).mul_(2).T.to(logits.dtype)


def _inverse(logits: Tensor, n: int) -> Tensor:
    """(n, n, batch) in float64: the inverse of I + A."""
    row, column = torch.triu_indices(n, n, offset=1, device=logits.device)
    z = logits.T.double()
    k = z.new_zeros(n, n, len(logits))
    k[row, column] = z
    k[column, row] = -z
    k.diagonal().fill_(1)
    for c in range(n):
        inverse = k[c, c].reciprocal()
        pivot_row = k[c] * inverse
        pivot_row[c] = inverse
        factor = k[:, c].clone()
        k[:, c] = 0
        k.addcmul_(factor[:, None], pivot_row[None, :], value=-1)
        k[c] = pivot_row
    return k


def _rotation(k: Tensor) -> Tensor:
    q = 2 * k
    q.diagonal().sub_(1)
    return q


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Sum over c of a[i, c] b[c, j] for each matrix of the batch."""
    product = a[:, 0, None] * b[None, 0]
    for c in range(1, len(b)):
        product.addcmul_(a[:, c, None], b[None, c])
    return product
