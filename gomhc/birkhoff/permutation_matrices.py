"""The d! permutation matrices, which are the vertices of the Birkhoff polytope. d = num_streams"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gomhc.shapes import Float

LARGEST = 8
"""The most streams whose permutations are listed: 40,320 of them; nine would need 362,880."""


def permutation_matrices(num_streams: int, like: Tensor) -> Float[Tensor, "k d d"]:
    """All d! permutation matrices in lexicographic order, the identity first, in the dtype and device of `like`.

    They are not to be changed in place: the next caller gets the same memory.
    """
    require_listed(num_streams)
    if torch.compiler.is_compiling():  # where a cache is not traced
        identity = torch.eye(num_streams, dtype=like.dtype, device=like.device)
        return identity[_orders(torch, num_streams).to(like.device)]
    dtype = np.float64 if like.dtype == torch.float64 else np.float32
    return torch.from_numpy(_cached(num_streams, dtype)).to(like)


def require_listed(num_streams: int) -> None:
    """Raise where there are too many permutations to list."""
    if num_streams > LARGEST:
        raise ValueError(
            f"num_streams={num_streams} has {num_streams}! permutations; at most {LARGEST} streams "
            f"({math.factorial(LARGEST):,}) are supported; use go, transportation or kronecker instead"
        )


@cache  # of arrays, not tensors: a tensor first made while torch traces would stay a traced one
def _cached(num_streams: int, dtype: type) -> np.ndarray:
    return np.eye(num_streams, dtype=dtype)[_orders(np, num_streams)]


def _orders(xp: Any, num_streams: int) -> Any:
    """(d!, d) whole numbers: which stream each one takes. `xp` is numpy or torch, whose names agree here."""
    orders = xp.arange(0).reshape(1, 0)
    for size in range(1, num_streams + 1):
        first = xp.arange(size).reshape(size, 1, 1)
        rest = orders + (orders >= first)  # the orders of one stream fewer, renumbered to leave `first` out
        first = xp.broadcast_to(first, (size, len(orders), 1))
        orders = xp.concatenate((first, rest), axis=-1).reshape(-1, size)
    return orders
