"""Where is the compiled library, and how is it called? `pip install` builds it where there is a C++ compiler."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LARGEST = 64
"""The most rows of a rotation, and the most streams, that it takes (tasks.h)."""


def _structure(name: str, pointers: str, **numbers: type) -> type[ctypes.Structure]:
    fields = [*((pointer, ctypes.c_void_p) for pointer in pointers.split()), *numbers.items()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


# As in native/tasks.h.
TASKS = {
    "map": _structure("Map", "logits grad out", count=ctypes.c_int64, d=ctypes.c_int, s=ctypes.c_int),
    "read": _structure(
        "Read",
        "x projection scale bias input write mix inverse_rms grad_x grad_projection grad_logits",
        tokens=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
        k=ctypes.c_int,
        offset=ctypes.c_float,
        epsilon=ctypes.c_float,
    ),
    "write": _structure(
        "Write",
        "x mix weights y out grad_x grad_mix grad_weights grad_y",
        tokens=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
    ),
}


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits this machine."""
    for path in sorted(Path(__file__).parent.glob("_native*")):
        try:
            found = ctypes.CDLL(str(path))
        except OSError:  # built for another system
            continue
        for name, task in TASKS.items():
            function = getattr(found, f"gomhc_{name}")
            function.argtypes, function.restype = [ctypes.POINTER(task), ctypes.c_int], None
        found.gomhc_instruction_set.restype = ctypes.c_char_p
        if (openmp := _openmp()) is not None:
            found.gomhc_use_openmp(openmp)
        return found
    return None


def _openmp() -> Any:
    """OpenMP's entry in the very library that torch has loaded, so that both share their threads (Linux)."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in {line.split()[-1] for line in lines if "libgomp" in line or "libiomp" in line}:
        if hasattr(found := ctypes.CDLL(path), "GOMP_parallel"):
            return found.GOMP_parallel
    return None


def instruction_set() -> str:
    """Which of its versions the library runs on this machine."""
    found = library()
    assert found is not None
    return str(found.gomhc_instruction_set().decode())


def call(name: str, **arguments: Tensor | float) -> None:
    """Run one operation on torch's number of threads; tensors are handed over by address, as tasks.h names them."""
    found = library()
    assert found is not None
    for key, value in arguments.items():
        if isinstance(value, Tensor):
            assert value.is_contiguous()
            assert value.dtype == torch.float32
            arguments[key] = value.data_ptr()
    getattr(found, f"gomhc_{name}")(TASKS[name](**arguments), torch.get_num_threads())
