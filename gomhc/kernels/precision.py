"""The precision that operations are computed in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}
"""Kinds of devices that have no float64."""


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Autocast turned off where the device has it (the meta device has not)."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: half precision is computed in float32."""
    return torch.promote_types(dtype, torch.float32)


def has_float64(device: torch.device) -> bool:
    """Whether tensors on this device can have the dtype float64."""
    return device.type not in WITHOUT_FLOAT64


def widened(tensor: Tensor) -> Tensor:
    """The tensor in the widest precision of its device: float64, or float32 where there is no float64."""
    return tensor.to(torch.float64 if has_float64(tensor.device) else torch.float32)


def in_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64; on the CPU if its device has no float64."""
    return tensor.double() if has_float64(tensor.device) else tensor.cpu().double()
