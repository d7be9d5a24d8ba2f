"""The precision that operations are computed in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Autocast turned off where the device has it (the meta device has not)."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: half precision is computed in float32."""
    return torch.promote_types(dtype, torch.float32)
