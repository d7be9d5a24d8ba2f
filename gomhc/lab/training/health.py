"""Is the network well? If not, where does a number that is not finite come from?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def first_not_finite(model: nn.Module, run: Callable[[], Any]) -> str | None:
    """The first module whose output is not finite when `run` runs the model, innermost first; None if all are."""
    found: list[str] = []

    def look(name: str, output: Any) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        if any(isinstance(tensor, Tensor) and not torch.isfinite(tensor).all() for tensor in tensors):
            found.append(name or type(model).__name__)

    handles = [
        module.register_forward_hook(lambda module, inputs, output, name=name: look(name, output))
        for name, module in model.named_modules()
    ]
    _run_with(handles, run)
    return found[0] if found else None


def first_gradient_not_finite(model: nn.Module) -> str | None:
    """The first parameter whose gradient is not finite."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad.sum())):
            return name
    return None


def _run_with(handles: list[Any], run: Callable[[], Any]) -> None:
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
