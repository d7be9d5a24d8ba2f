"""Modules inside a model of transformers that stay in float32 when the model is cast to fewer bits.

`_keep_in_fp32_modules_strict` of transformers says so for loading alone. A plain `gomhc.HyperConnection` follows
`.bfloat16()` as every module of torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.kernels.precision import at_least_float32


class InFloat32(nn.Module):
    """Follows `.to(...)` to any device, and to float64, but not to float16 or bfloat16."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        apply: Any = super()._apply
        return apply(lambda tensor: _at_least_float32(fn, tensor), recurse)


class Connections(InFloat32, nn.ModuleDict):
    """The hyper-connections of a layer, by name."""


def place_beside(module: nn.Module) -> dict[str, Any]:
    """Device and dtype for parameters that are put beside those of this module."""
    # A model that is being loaded is made on the meta device, where some of its parameters may not be (DiffLlama's).
    meta = torch.get_default_device().type == "meta"
    return {"device": torch.device("meta") if meta else next(module.parameters()).device, "dtype": torch.float32}


def _at_least_float32(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """What the function makes of the tensor, from its own digits where the function would drop some."""
    result = fn(tensor)
    if not result.is_floating_point() or result.dtype == at_least_float32(result.dtype):
        return result
    return tensor.to(result.device, at_least_float32(result.dtype))
