"""A device without float64, as Apple's MPS is, simulated by tensors that compute on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

DEVICE = torch.device("meta")
WIDE = (torch.float64, torch.complex128)


class NarrowTensor(Tensor):
    """A tensor that says it is on MPS; `inner` holds its values."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> NarrowTensor:
        if inner.dtype in WIDE:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=DEVICE
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"NarrowTensor({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _on_the_cpu(function, args, kwargs or {})


class NarrowDevice(TorchDispatchMode):
    """Inside, tensors can be made on the device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _on_the_cpu(function, args, kwargs or {})


def _on_the_cpu(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors: list[Tensor] = []
    tree_map(lambda leaf: tensors.append(leaf) if isinstance(leaf, Tensor) else None, (args, kwargs))
    narrow = any(isinstance(tensor, NarrowTensor) for tensor in tensors)
    foreign = any(not isinstance(tensor, NarrowTensor) and tensor.dim() > 0 for tensor in tensors)
    if narrow and foreign and function is not torch.ops.aten.copy_.default:
        raise RuntimeError(f"{function}: expected all tensors to be on the same device, got this one and cpu")
    device = kwargs.get("device")
    if device is not None:
        narrow = torch.device(device).type == DEVICE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = tree_map(lambda leaf: leaf.inner if isinstance(leaf, NarrowTensor) else leaf, (args, kwargs))
    result = function(*args, **kwargs)
    return tree_map(lambda leaf: NarrowTensor(leaf) if narrow and isinstance(leaf, Tensor) else leaf, result)


def moved(module: nn.Module) -> nn.Module:
    """Move the parameters and buffers of a module to the device; torch's own `to` does not take such tensors."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            part._parameters[name] = nn.Parameter(parameter.detach().to(DEVICE), parameter.requires_grad)
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = buffer.to(DEVICE)
    return module
