r"""Products in Triton in which each row of the result depends on its own row alone, bit for bit.

Y = X M
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from gomhc.kernels.triton.launch import launch
from gomhc.kernels.triton.tiles import load_float32

ROW_BLOCK, INNER_BLOCK, COLUMN_BLOCK = 32, 32, 64
"""Tiles of a product. They are the same for every number of rows: sums are cut in the same places."""


def project(x: Tensor, weight: Tensor) -> Tensor:
    """(N, k) x weight^T in float32, for x (N, i) and weight (k, i)."""
    result = x.new_empty(len(x), len(weight), dtype=torch.float32)
    strides = {"inner_stride": 1, "column_stride": weight.shape[1]}
    _launch_product(result, x, weight, inner=weight.shape[1], num_columns=len(weight), **strides, adds=False)
    return result


def add_back_(x: Tensor, y: Tensor, weight: Tensor) -> None:
    """`x += y weight`, for contiguous x (N, i), y (N, k) and weight (k, i), with sums in float32."""
    strides = {"inner_stride": weight.shape[1], "column_stride": 1}
    _launch_product(x, y, weight, inner=len(weight), num_columns=weight.shape[1], **strides, adds=True)


def _launch_product(out: Tensor, rows: Tensor, weight: Tensor, **sizes: int) -> None:
    tiles = {"row_block": ROW_BLOCK, "inner_block": INNER_BLOCK, "column_block": COLUMN_BLOCK}
    grid = (triton.cdiv(len(rows), ROW_BLOCK), triton.cdiv(sizes["num_columns"], COLUMN_BLOCK))
    launch(_row_product, grid, out, rows, weight, len(rows), **sizes, **tiles)


@triton.jit
@no_type_check
def _row_product(
    out,
    rows,
    matrix,
    num_rows,
    inner: tl.constexpr,
    num_columns: tl.constexpr,
    inner_stride: tl.constexpr,
    column_stride: tl.constexpr,
    adds: tl.constexpr,
    row_block: tl.constexpr,
    inner_block: tl.constexpr,
    column_block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * row_block + tl.arange(0, row_block)
    column = tl.program_id(1) * column_block + tl.arange(0, column_block)
    total = tl.zeros((row_block, column_block), tl.float32)
    for start in range(0, inner, inner_block):
        i = start + tl.arange(0, inner_block)
        left = load_float32(rows + row[:, None] * inner + i[None, :], (row < num_rows)[:, None] & (i < inner)[None, :])
        place = i[:, None] * inner_stride + column[None, :] * column_stride
        right = load_float32(matrix + place, (i < inner)[:, None] & (column < num_columns)[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    place = row[:, None] * num_columns + column[None, :]
    inside = (row < num_rows)[:, None] & (column < num_columns)[None, :]
    if adds:
        total += load_float32(out + place, inside)
    tl.store(out + place, total, mask=inside)
