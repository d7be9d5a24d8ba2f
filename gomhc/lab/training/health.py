"""Search for the layer or the gradient in which the first number that is not finite appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def first_not_finite(model: nn.Module, run: Callable[[], Any]) -> str | None:
    """Return the first module whose output is not finite when `run` runs the model, innermost first, or None."""
    not_finite: list[str] = []

    def check(name: str, output: Any) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        if any(isinstance(tensor, Tensor) and not torch.isfinite(tensor).all() for tensor in tensors):
            not_finite.append(name or type(model).__name__)

    handles = [
        module.register_forward_hook(lambda module, inputs, output, name=name: check(name, output))
        for name, module in model.named_modules()
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return not_finite[0] if not_finite else None


def first_gradient_not_finite(model: nn.Module) -> str | None:
    """Return the first parameter whose gradient is not finite, or None."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad.sum())):
            return name
    return None
