r"""A matrix product in which each row of the result depends on its own row alone, bit for bit, in pure torch.

    Y = X M

BLAS makes one product of many rows: how it cuts the sums, and so how they round, depends on the number of rows, on the
place of a row among them and on the number of threads. Here each row is a product of its own in a batch of products.
A batch of one would be shared out among threads again, so there are always two; and columns are filled up, because MKL
rounds differently where a row of results does not begin at a multiple of its vectors. All of this is observed, and no
BLAS promises it: C++ and Triton have products of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from gomhc.kernels.transforms import is_transformed
from gomhc.shapes import Float

ALIGNED = 16
"""Columns are filled up to a multiple of this."""


def row_product(rows: Float[Tensor, "*batch i"], matrix: Float[Tensor, "i j"]) -> Float[Tensor, "*batch j"]:
    """`rows @ matrix`. What torch.compile and torch.func make of it is theirs: there it is the ordinary product."""
    if torch.compiler.is_compiling() or is_transformed(rows, matrix):
        return rows @ matrix
    product: Tensor = _RowProduct.apply(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]), matrix)
    return product.reshape(*rows.shape[:-1], matrix.shape[-1])


class _RowProduct(torch.autograd.Function):
    """With a backward of its own: autograd would make a gradient of the matrix for each row, and add them up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        count, columns = len(rows), matrix.shape[-1]
        if count == 1:
            rows = rows.expand(2, -1)
        matrix = pad(matrix, (0, -columns % ALIGNED))
        return torch.bmm(rows[:, None], matrix.expand(len(rows), *matrix.shape))[:count, 0, :columns]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        grad_rows = row_product(grad, matrix.mT) if ctx.needs_input_grad[0] else None
        return grad_rows, (grad.mT @ rows).mT if ctx.needs_input_grad[1] else None
