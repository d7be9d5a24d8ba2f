"""Gradients of a plain version, for what has no gradient of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def gradients(function: Callable[..., Any], inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of a function at its inputs, from those at its results."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        results = function(*leaves)
    return torch.autograd.grad(results, leaves, grads)
