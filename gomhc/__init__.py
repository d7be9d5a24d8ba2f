"""Exact doubly stochastic maps for multi-stream residual networks (go-mHC and the methods it is compared to)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gomhc import inspection, kernels, models, statistics
from gomhc.birkhoff import (
    PARAMETRIZATIONS,
    Average,
    Identity,
    Kronecker,
    LinearSinkhorn,
    Orthostochastic,
    Parametrization,
    Permutations,
    Promise,
    Sinkhorn,
    Transportation,
    Unconstrained,
    Unistochastic,
    register,
)
from gomhc.integrations.parametrize import doubly_stochastic
from gomhc.layers import HyperConnection, LearnedReadout, Residual, expand, parameter_groups, readout
from gomhc.version import __version__

if TYPE_CHECKING:
    from gomhc.integrations.architectures import Architecture, register_architecture
    from gomhc.integrations.checkpoints import from_pretrained
    from gomhc.integrations.swap_mixing import swap_mixing
    from gomhc.integrations.upcycle import upcycle

__all__ = [
    "PARAMETRIZATIONS",
    "Architecture",
    "Average",
    "HyperConnection",
    "Identity",
    "Kronecker",
    "LearnedReadout",
    "LinearSinkhorn",
    "Orthostochastic",
    "Parametrization",
    "Permutations",
    "Promise",
    "Residual",
    "Sinkhorn",
    "Transportation",
    "Unconstrained",
    "Unistochastic",
    "__version__",
    "doubly_stochastic",
    "expand",
    "from_pretrained",
    "inspection",
    "kernels",
    "models",
    "parameter_groups",
    "readout",
    "register",
    "register_architecture",
    "statistics",
    "swap_mixing",
    "upcycle",
]

_WITH_TRANSFORMERS = {
    "Architecture": "architectures",
    "from_pretrained": "checkpoints",
    "register_architecture": "architectures",
    "swap_mixing": "swap_mixing",
    "upcycle": "upcycle",
}
"""Names that need gomhc[hf], and the module that has each: imported when they are first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _WITH_TRANSFORMERS:
        raise AttributeError(f"module 'gomhc' has no attribute {name!r}")
    try:
        return getattr(import_module(f"gomhc.integrations.{_WITH_TRANSFORMERS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ModuleNotFoundError(
            f"gomhc.{name} needs transformers; install it with: pip install 'gomhc[hf]'", name=error.name
        ) from error
