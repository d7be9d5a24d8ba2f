"""Detection of transforms of torch (vmap, jvp, ...) that compiled operators do not support.

The only place that uses private parts of torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

# There is no public way to ask. Without this one everything counts as transformed, which is slow and right.
_in_torch_func: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def is_transformed(*tensors: Tensor) -> bool:
    """Inside vmap, jvp, jacrev and the like, or where a tensor carries a tangent (forward-mode differentiation)."""
    if _in_torch_func():
        return True
    if getattr(forward_ad, "_current_level", 0) < 0:  # nothing has a tangent; to ask each tensor takes a microsecond
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


# Neither is there one to ask for modes, which see every operation, and for tracing.
_is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", lambda: True)
_num_modes: tuple[Callable[[], int], ...] = tuple(
    getattr(torch._C, name, lambda: 1) for name in ("_len_torch_dispatch_stack", "_len_torch_function_stack")
)


def is_unobserved() -> bool:
    """Whether nothing but numbers is wanted of operations now: no gradient, tangent, graph or other record."""
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or _is_tracing()
        or _in_torch_func()
        or getattr(forward_ad, "_current_level", 0) >= 0
        or _num_modes[0]()
        or _num_modes[1]()
    )
