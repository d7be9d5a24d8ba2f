"""Exact doubly stochastic maps for multi-stream residual networks (go-mHC and the methods it is compared to)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gomhc import inspection, kernels, models, statistics
from gomhc.birkhoff import (
    PARAMETRIZATIONS,
    Average,
    BoundedOffDiagonal,
    Circulant,
    Identity,
    Kronecker,
    LinearSinkhorn,
    Orthogonal,
    Orthostochastic,
    Parametrization,
    Permutations,
    PolytopeProjection,
    Promise,
    RowStochastic,
    Sinkhorn,
    SpectralSphere,
    Transportation,
    Unconstrained,
    Unistochastic,
    register,
)
from gomhc.integrations import auto_types
from gomhc.integrations.architectures import Architecture, register_architecture
from gomhc.integrations.deepseek_v4 import SinkhornV4
from gomhc.integrations.parametrize import doubly_stochastic
from gomhc.integrations.swapping import swap_mixing
from gomhc.layers import FracConnection, HyperConnection, LearnedReadout, Residual, expand, parameter_groups, readout
from gomhc.version import __version__

if TYPE_CHECKING:
    from gomhc.integrations.checkpoints import from_pretrained
    from gomhc.integrations.upcycle import upcycle

__all__ = [
    "PARAMETRIZATIONS",
    "Architecture",
    "Average",
    "BoundedOffDiagonal",
    "Circulant",
    "FracConnection",
    "HyperConnection",
    "Identity",
    "Kronecker",
    "LearnedReadout",
    "LinearSinkhorn",
    "Orthogonal",
    "Orthostochastic",
    "Parametrization",
    "Permutations",
    "PolytopeProjection",
    "Promise",
    "Residual",
    "RowStochastic",
    "Sinkhorn",
    "SinkhornV4",
    "SpectralSphere",
    "Transportation",
    "Unconstrained",
    "Unistochastic",
    "__version__",
    "doubly_stochastic",
    "expand",
    "inspection",
    "kernels",
    "models",
    "parameter_groups",
    "readout",
    "register",
    "register_architecture",
    "statistics",
    "swap_mixing",
]

_WITH_TRANSFORMERS = {"from_pretrained": "checkpoints", "upcycle": "upcycle"}
"""Names that need gomhc[hf], and the module that has each: imported when they are first asked for."""

if find_spec("transformers") is not None:  # or `from gomhc import *` would fail without it
    __all__ += ["from_pretrained", "upcycle"]

auto_types.teach()


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
