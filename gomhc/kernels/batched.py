r"""The go-mHC map in pure torch with the batch innermost, for where nothing is compiled.

    K = (I + A)^{-1} by Gauss and Jordan, all matrices at once;    backward: G_A = -2 K^T G_Q K^T

Every step is one operation on long rows of memory, where batched LAPACK walks from one small matrix to the next.
Without pivots the error grows with the logits, so each matrix is computed as it needs to be, whatever its neighbours
are: in float32, where that is not good enough in float64, and where that is not by the plain version.
Sums are written out, term after term: torch.sum orders them by where they lie in memory.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gomhc.kernels import plain_map


class Attempt(NamedTuple):
    """A precision to compute in without pivots."""

    precision: torch.dtype
    limit: float
    """The largest logit with which it is tried."""
    loose: float
    """How far the sums of a matrix may be from one at first; they are made exact then."""


ATTEMPTS = (Attempt(torch.float32, 4.5, 2.0**-19), Attempt(torch.float64, 128.0, 2.0**-26))
"""Tried in turn. As in native/tasks.h, but twice as strict in float32: elimination two rows at a time, as there, loses
fewer digits."""
CHUNK_ENTRIES = 2**20
"""Entries of the matrices that are computed together; a larger batch is computed in chunks."""
MOST_GROUPS = 8
"""Groups that a chunk is divided into, if its size allows: each thread then works on memory of its own."""


def orthostochastic(logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
    """(*batch, p) -> (*batch, d, d), as `gomhc.kernels.orthostochastic` has it."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling() or logits.numel() == 0:
        # Which precision each matrix needs can only be looked up on the CPU, in eager mode.
        return plain_map.orthostochastic(logits, num_streams, expressivity)
    flat = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    matrix: Tensor = _Orthostochastic.apply(flat, num_streams, expressivity)
    return matrix.reshape(*logits.shape[:-1], num_streams, num_streams)


class _Orthostochastic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, num_streams: int, expressivity: int) -> Tensor:
        matrix = logits.new_empty(len(logits), num_streams, num_streams)
        largest_logit = logits.abs().amax(-1)
        unfinished = torch.arange(len(logits), device=logits.device)
        computed: list[tuple[Any, Tensor | None]] = []  # rows of the batch, and their inverses; later ones overwrite
        for precision, limit, loose in ATTEMPTS:
            within_limit = largest_logit[unfinished] <= limit
            if not within_limit.any():
                continue
            rows = _rows(unfinished, len(logits))
            matrix[rows], off, inverse = _matrices(logits[rows], num_streams, expressivity, precision)
            computed.append((rows, inverse))
            accurate = off <= loose  # false for NaN
            unfinished = unfinished[~(within_limit & accurate)]
        if len(unfinished) > 0:
            rows = _rows(unfinished, len(logits))
            matrix[rows] = plain_map.orthostochastic(logits[rows], num_streams, expressivity)
            computed.append((rows, None))
        ctx.save_for_backward(logits)
        ctx.num_streams, ctx.expressivity, ctx.computed = num_streams, expressivity, computed
        return matrix

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the plain version has all of them
            return _plain_gradient(ctx, logits, grad), None, None
        grad_logits = logits.new_empty(logits.shape)
        for rows, inverse in ctx.computed:
            if inverse is not None:
                grad_logits[rows] = _gradients(inverse, grad[rows], logits.dtype)
            else:
                with torch.enable_grad():
                    leaf = logits.detach()[rows].requires_grad_()
                    grad_logits[rows] = _plain_gradient(ctx, leaf, grad[rows]).detach()
        return grad_logits, None, None


def _rows(indices: Tensor, size: int) -> Any:
    """What to index a batch with: a slice, which copies nothing, where all of it is meant."""
    return slice(None) if len(indices) == size else indices


def _plain_gradient(ctx: Any, logits: Tensor, grad: Tensor) -> Tensor:
    """The gradient at the logits by the plain version, which can be differentiated again."""
    matrix = plain_map.orthostochastic(logits, ctx.num_streams, ctx.expressivity)
    return torch.autograd.grad(matrix, logits, grad, create_graph=True)[0]


def _matrices(logits: Tensor, num_streams: int, expressivity: int, precision: torch.dtype) -> tuple[Tensor, ...]:
    """The matrices, how far their sums were from one, and the inverses."""
    n = num_streams * expressivity
    matrix, off = logits.new_empty(len(logits), num_streams, num_streams), logits.new_empty(len(logits))
    inverse = logits.new_empty(len(logits), n**2, dtype=precision)
    chunks = zip(*(_chunks(tensor, n) for tensor in (logits, matrix, off, inverse)), strict=True)
    for logits_chunk, matrix_chunk, off_chunk, inverse_chunk in chunks:
        k = _grouped(inverse_chunk, n)
        _invert(_innermost(logits_chunk).to(precision), out=k)
        norms, error = _block_norms(k, num_streams)
        matrix_chunk.flatten(1).copy_(norms.flatten(1, 2).transpose(0, 1).flatten(1).T)
        off_chunk.copy_(error.flatten())
    return matrix, off, inverse


def _gradients(inverse: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradients at the logits, from the inverses and the gradients at the matrices."""
    n = math.isqrt(inverse.shape[-1])
    grad_logits = grad.new_empty(len(grad), n * (n - 1) // 2, dtype=dtype)
    for k, g, out in zip(*(_chunks(tensor, n) for tensor in (inverse, grad, grad_logits)), strict=True):
        innermost = _innermost(g.flatten(1)).to(k.dtype).unflatten(0, g.shape[1:])
        out.copy_(_backward(_grouped(k, n), innermost).flatten(1).T)
    return grad_logits


def _chunks(x: Tensor, n: int) -> tuple[Tensor, ...]:
    """Views of a part of the batch each, so small that scratch memory for its matrices is used again."""
    return x.split(max(1, CHUNK_ENTRIES // n**2))


def _grouped(x: Tensor, n: int) -> Tensor:
    """(batch, n²) as (groups, n, n, batch / groups), a view of the same memory."""
    return x.view(_num_groups(len(x)), n, n, -1)


def _innermost(x: Tensor) -> Tensor:
    """(batch, ...) -> (..., groups, batch / groups)"""
    return x.T.contiguous().unflatten(1, (_num_groups(len(x)), -1))


def _num_groups(batch: int) -> int:
    """As many groups as divide the batch."""
    return math.gcd(batch, MOST_GROUPS)


def _invert(z: Tensor, *, out: Tensor) -> None:
    """Write the inverse of I + A, (groups, n, n, batch), for the logits z of A, (p, groups, batch)."""
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


def _block_norms(k: Tensor, num_streams: int) -> tuple[Tensor, Tensor]:
    """(groups, d, d, batch): the squares of Q = 2K - I, summed over the blocks of s x s and divided by s.

    Then (groups, batch): how far sums of them were from one, before they were divided by their sums.
    """
    s = k.shape[1] // num_streams
    matrix = k.new_zeros(len(k), num_streams, num_streams, k.shape[-1])
    for a, b in product(range(s), repeat=2):
        q = 2 * k[:, a::s, b::s]
        if a == b:
            q.diagonal(dim1=1, dim2=2).sub_(1)
        matrix.addcmul_(q, q, value=1 / s)
    rows = _total(matrix, 2)
    columns = _total(matrix.div_(rows), 1)
    matrix.div_(columns)
    if matrix.dtype == torch.float32:  # dividing columns left a share of their error in the rows
        matrix.div_(_total(matrix, 2)).div_(_total(matrix, 1))
    off = torch.maximum((rows - 1).abs().amax((1, 2)), (columns - 1).abs().amax((1, 2)))
    return matrix, off


def _total(matrix: Tensor, axis: int) -> Tensor:
    """The sum over an axis that is kept, term after term."""
    return reduce(add, matrix.split(1, dim=axis))


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
