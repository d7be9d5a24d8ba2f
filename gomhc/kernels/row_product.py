r"""A matrix product in which each row of the result depends on its own row alone, bit for bit.

    Y = X M

BLAS makes one product of many rows: how it cuts the sums, and so how they round, depends on the number of rows and of
threads. Here rows go in blocks of one size, each a product of its own in a batch of products, which is as fast. A batch
of one product would be shared out among threads again, so there are always two blocks at least.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from gomhc.kernels.transforms import is_transformed

BLOCK = 16
"""Rows of a block."""


def row_product(rows: Float[Tensor, "*batch i"], matrix: Float[Tensor, "i j"]) -> Float[Tensor, "*batch j"]:
    """`rows @ matrix`. What torch.compile and torch.func make of it is theirs: there it is the ordinary product."""
    if torch.compiler.is_compiling() or is_transformed(rows, matrix):
        return rows @ matrix
    product: Tensor = _RowProduct.apply(rows.reshape(-1, rows.shape[-1]), matrix)
    return product.reshape(*rows.shape[:-1], matrix.shape[-1])


class _RowProduct(torch.autograd.Function):
    """Autograd of the batched product would make a gradient of the matrix for each block, and add them up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        product = rows.new_zeros(len(rows), matrix.shape[-1])
        add_row_product_(product, rows, matrix)
        return product

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        grad_rows = row_product(grad, matrix.mT) if ctx.needs_input_grad[0] else None
        return grad_rows, rows.mT @ grad if ctx.needs_input_grad[1] else None


def add_row_product_(out: Float[Tensor, "n j"], rows: Float[Tensor, "n i"], matrix: Float[Tensor, "i j"]) -> None:
    """`out += rows @ matrix`, in place and without autograd."""
    whole = len(rows) // BLOCK if len(rows) >= 2 * BLOCK else 0
    main, rest = rows[: whole * BLOCK], rows[whole * BLOCK :]
    if whole:
        out[: whole * BLOCK].unflatten(0, (whole, BLOCK)).baddbmm_(
            main.unflatten(0, (whole, BLOCK)), matrix.expand(whole, *matrix.shape)
        )
    if len(rest):
        padded = pad(out[whole * BLOCK :], (0, 0, 0, 2 * BLOCK - len(rest))).unflatten(0, (2, BLOCK))
        blocks = pad(rest, (0, 0, 0, 2 * BLOCK - len(rest))).unflatten(0, (2, BLOCK))
        out[whole * BLOCK :] = padded.baddbmm(blocks, matrix.expand(2, *matrix.shape)).flatten(0, 1)[: len(rest)]
