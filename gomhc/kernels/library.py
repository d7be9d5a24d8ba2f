"""The compiled library: where it is, and how an operation in it is called.

`pip install` builds it where there is a C++ compiler; where that fails, the output of the build is here in its place.
Nothing reaches it but through `call`, which checks every tensor and keeps it alive until the operation is done.
"""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gomhc.kernels.forms import Part
from gomhc.kernels.stamp import has_stamp, stamp

FOLDER = Path(__file__).parent
"""Folder of the built library, `_native*`, or of the output of its build, FAILURE; and of its sources, `native`."""
FAILURE = "build_failure.txt"
"""Name of the file with the output of a build that failed (CMakeLists.txt)."""
ADVICE = "install a C++ compiler (GCC 11, clang 14 or newer) and install gomhc again"


class NativeTask(ctypes.Structure):
    """Arguments of an operation, as in native/tasks.h. It owns the tensors whose addresses it holds."""

    shapes: ClassVar[dict[str, tuple[str, ...]]]
    """Name of a tensor -> the letters of its shape."""
    streams: ClassVar[frozenset[str]]
    """Names of the tensors that have the dtype of the streams; the others are float32."""
    measure: ClassVar[dict[str, Callable[[dict[str, Any]], tuple[int, ...]]]]
    """Name of a tensor -> what makes its shape of the sizes."""
    numbers: ClassVar[tuple[str, ...]]
    """Names of its other fields."""
    tensors: list[Tensor]
    form: Any
    """The array that the pointer `parts` of a map points to."""

    @classmethod
    def make(cls, inputs: dict[str, Tensor], outputs: dict[str, Tensor], sizes: dict[str, Any]) -> NativeTask:
        """Make one, and check that each address in it is that of a tensor of the right dtype and shape."""
        tensors = {**inputs, **outputs}
        dtype = tensors["x"].dtype if cls.streams else torch.float32
        addresses = dict.fromkeys(cls.shapes)
        for name, tensor in tensors.items():
            if not tensor.is_contiguous() and name in inputs:
                tensor = tensors[name] = tensor.contiguous()
            if (
                tensor.shape != cls.measure[name](sizes)
                or tensor.dtype is not (dtype if name in cls.streams else torch.float32)
                or not tensor.is_cpu
                or not tensor.is_contiguous()
            ):
                raise cls._wrong(name, tensor, sizes)
            addresses[name] = tensor.data_ptr()
        if cls.streams:
            if dtype not in ELEMENTS:
                raise cls._wrong("x", tensors["x"], sizes)
            sizes["element"] = ELEMENTS[dtype]
        task = cls(*addresses.values(), *[sizes[name] for name in cls.numbers])
        task.tensors, task.form = list(tensors.values()), sizes.get("parts")
        return task

    @classmethod
    def _wrong(cls, name: str, tensor: Tensor, sizes: dict[str, Any]) -> ValueError:
        shape = tuple(cls.measure[name](sizes))
        dtype = "of the dtype of the streams" if name in cls.streams else "float32"
        return ValueError(
            f"{name} must be {dtype} on the CPU, contiguous where it is written to, of shape "
            f"({', '.join(cls.shapes[name])}) = {shape}, got {tensor.dtype} on {tensor.device}, of shape "
            f"{tuple(tensor.shape)}; gomhc.kernels takes other dtypes too"
        )


BATCHES = ("tokens", "matrices", "own")
"""Letters of sizes that may be several dimensions, or none, as long as their product is that number."""
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Dtype of the streams -> its number in native/tasks.h."""


def _task(name: str, shapes: dict[str, str], streams: str = "", **numbers: Any) -> type[NativeTask]:
    pointers = [(tensor, ctypes.c_void_p) for tensor in shapes]
    letters = {tensor: tuple(shape.split()) for tensor, shape in shapes.items()}
    fields = {
        "_fields_": [*pointers, *numbers.items()],
        "shapes": letters,
        "streams": frozenset(streams.split()),
        "measure": {tensor: _measure(shape) for tensor, shape in letters.items()},
        "numbers": tuple(numbers),
    }
    return type(name, (NativeTask,), fields)


def _measure(letters: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[int, ...]]:
    """What makes a shape of the sizes. Those in BATCHES may be any number of dimensions: `axes` has them."""
    first, *others = letters
    if first in BATCHES:
        inner = _measure(tuple(others)) if others else lambda sizes: ()
        return lambda sizes: sizes["axes"][first] + inner(sizes)
    if not others:  # of which itemgetter makes no tuple
        return lambda sizes: (sizes[first],)
    return itemgetter(*letters)


# As in native/tasks.h: the same fields in the same order.
TASKS = {
    "map": _task(
        "Map",
        {"logits": "count p", "matrix": "count d d", "grad_logits": "count p"},
        parts=ctypes.POINTER(Part),  # it keeps alive what it is set to
        count=ctypes.c_int64,
        back=ctypes.c_int,
    ),
    "read": _task(
        "Read",
        {
            "x": "tokens d c",
            "weight": "k dc",
            "scale": "k",
            "bias": "k",
            "input": "tokens c",
            "write": "tokens d",
            "mix": "tokens p",
            "projection": "tokens k",
            "inverse_rms": "tokens",
            "grad_x": "tokens d c",
            "grad_projection": "tokens k",
            "grad_logits": "tokens k",
            "grad_weight": "k dc",
            "grad_later": "tokens d c",
        },
        streams="x input grad_x grad_later",
        tokens=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
        k=ctypes.c_int,
        element=ctypes.c_int,
        back=ctypes.c_int,
        offset=ctypes.c_float,
        epsilon=ctypes.c_float,
    ),
    "connect": _task(
        "Connect",
        {
            "x": "tokens d c",
            "before_mix": "matrices d d",
            "before_write": "matrices d",
            "y": "tokens c",
            "out": "tokens d c",
            "weight": "k dc",
            "scale": "three",
            "bias": "k",
            "input": "tokens c",
            "write": "own d",
            "mix": "own d d",
            "projection": "tokens k",
            "inverse_rms": "tokens",
            "grad_out": "tokens d c",
            "grad_x": "tokens d c",
            "grad_before_mix": "matrices d d",
            "grad_before_write": "matrices d",
            "grad_y": "tokens c",
            "grad_projection": "tokens k",
            "grad_weight": "k dc",
            "grad_scale": "three",
            "grad_bias": "k",
        },
        streams="x y out input grad_out grad_x grad_y",
        parts=ctypes.POINTER(Part),
        tokens=ctypes.c_int64,
        matrices=ctypes.c_int64,
        own=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
        k=ctypes.c_int,
        element=ctypes.c_int,
        back=ctypes.c_int,
        offset=ctypes.c_float,
        epsilon=ctypes.c_float,
    ),
    "sum": _task(
        "Sum",
        {
            "x": "tokens d c",
            "weights": "d",
            "input": "tokens c",
            "grad_x": "tokens d c",
            "grad_weights": "d",
            "grad_later": "tokens d c",
        },
        streams="x input grad_x grad_later",
        tokens=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
        element=ctypes.c_int,
        back=ctypes.c_int,
    ),
    "write": _task(
        "Write",
        {
            "x": "tokens d c",
            "mix": "matrices d d",
            "weights": "matrices d",
            "y": "tokens c",
            "out": "tokens d c",
            "grad_x": "tokens d c",
            "grad_mix": "matrices d d",
            "grad_weights": "matrices d",
            "grad_y": "tokens c",
        },
        streams="x y out grad_x grad_y",
        tokens=ctypes.c_int64,
        matrices=ctypes.c_int64,
        c=ctypes.c_int64,
        d=ctypes.c_int,
        element=ctypes.c_int,
        back=ctypes.c_int,
    ),
}


FUNCTIONS = {name: f"gomhc_{name}" for name in TASKS}
"""Name of an operation -> that of its function in the library."""


class _Search(NamedTuple):
    library: ctypes.CDLL | None
    problem: str
    """Why there is none, and what to do."""


def library() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits this machine and these sources."""
    return search().library


@cache
def search() -> _Search:
    """Look for a library once, and warn if there is one that must not be used."""
    unusable = []
    for path in sorted(FOLDER.glob("_native*")):
        try:
            if has_stamp(path, stamp(FOLDER / "native")):
                return _Search(_loaded(path), "")
            unusable.append(f"{path.name} was built from other sources than those of this gomhc")
        except (OSError, AttributeError) as error:  # of another system, unreadable, or without a function
            unusable.append(f"{path.name} cannot be loaded ({error})")
    if not unusable:
        return _Search(None, _why_not_built())
    problem = f"{'; '.join(unusable)}: delete it and install gomhc again, or what runs is the slower torch version"
    warnings.warn(problem, UserWarning, stacklevel=2)
    return _Search(None, f"not used: {problem}")


def _why_not_built() -> str:
    log = FOLDER / FAILURE
    if not log.exists():
        return f"not built in {FOLDER}: {ADVICE}; to import it in a clone: pip install --editable ."
    return f"not built: {first_error(log.read_text(errors='replace'))}; {ADVICE}, or see {log}"


def first_error(log: str) -> str:
    """The first error in the output of CMake and a compiler: its line, or the first sentence of one of CMake's own."""
    of_cmake = re.search(r"^CMake Error[^\n]*:\n(.+?)\.$", log, re.MULTILINE | re.DOTALL)
    of_compiler = re.search(r"^.*\berror\b.*$", log, re.MULTILINE | re.IGNORECASE)
    if of_cmake is not None:
        return " ".join(of_cmake[1].split())
    return of_compiler[0].strip() if of_compiler is not None else "the build failed without an error message"


def _loaded(path: Path) -> ctypes.CDLL:
    native = ctypes.CDLL(str(path))
    for name, task in TASKS.items():
        function = getattr(native, FUNCTIONS[name])
        function.argtypes, function.restype = [ctypes.POINTER(task), ctypes.c_int], None
    native.gomhc_instruction_set.restype = ctypes.c_char_p
    openmp = _openmp()
    if openmp is not None:
        native.gomhc_use_openmp(openmp)
    return native


def _openmp() -> Any:
    """OpenMP's entry as torch itself calls it, so that both share their threads; None where torch has none (Linux)."""
    torch_library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:  # the copy that is loaded, and never another one; symbols are looked up in what it is linked to
        return ctypes.CDLL(str(torch_library), mode=os.RTLD_NOLOAD | os.RTLD_LAZY).GOMP_parallel
    except (OSError, AttributeError):
        return None


def instruction_set() -> str:
    """Name of the instruction set that the library uses on this machine."""
    native = library()
    assert native is not None
    return str(native.gomhc_instruction_set().decode())


def call(name: str, inputs: dict[str, Tensor], outputs: dict[str, Tensor], **sizes: Any) -> None:
    """Run one operation on torch's number of threads.

    Args:
        name: of the operation, a key of `TASKS`.
        inputs: tensors by their names in tasks.h; copied where they are not contiguous.
        outputs: contiguous tensors that are written to.
        sizes: every letter of the shapes, and the numbers that the operation takes.
    """
    native = library()
    if native is None:
        raise ValueError(f"the compiled {name} is {search().problem}")
    task = TASKS[name].make(inputs, outputs, sizes)
    getattr(native, FUNCTIONS[name])(task, torch.get_num_threads())
