r"""The Triton kernels, compiled ahead of time for GPUs that need not be present: registers, spills, memory, times.

Registers, spilled bytes and shared memory are the compiler's. Bytes are those of the tensors of a launch, each once,
and twice where a launch reads what it writes: a program reads its own tokens again out of the cache, and so do programs
that share weights. The least that an operation must move is its inputs and results, once each. The predicted time is

    bytes / (REACHED * bandwidth)

without arithmetic and without launches: a bound from below, which the map of go-mHC in float64 will not reach.
d = num_streams, c = channels, p = number of logits
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gomhc.kernels import dispatch, triton_ops
from gomhc.kernels.forms import parsed
from gomhc.kernels.triton.launch import OPTIONS, Launch, recorded


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU that kernels are compiled for."""

    target: tuple[str, Any, int]
    """Backend of Triton, architecture, and threads of a warp."""
    example: str
    """A GPU of this kind."""
    bandwidth: float
    """Terabytes per second of the example, as its maker states them."""


GPUS = {
    "sm_80": Gpu(("cuda", 80, 32), "A100 80 GB", 2.04),
    "sm_90": Gpu(("cuda", 90, 32), "H100 SXM", 3.35),
    "sm_100": Gpu(("cuda", 100, 32), "B200", 8.0),
    "gfx942": Gpu(("hip", "gfx942", 64), "MI300X", 5.3),
}
REACHED = 0.8
"""Share of the bandwidth that a kernel is taken to reach."""
TWICE = {"factors"}
"""Arguments of kernels that are written and read in one launch; so is `out` of a product that adds to it."""
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", int: "i32", float: "fp32"}
"""Dtype of a tensor or type of a number -> what Triton calls it."""
LAYERS = ((4096, 4, 384, torch.float32), (8192, 4, 4096, torch.bfloat16), (4096, 16, 1024, torch.bfloat16))
"""(tokens, d, c, dtype) of the layers that are compiled for."""
FORMS = (
    *("go:4:2:0.0", "go:8:2:0.0", "go:16:2:0.0", "go:32:2:0.0"),
    *("sinkhorn:4:20:0.0", "sinkhorn:64:20:0.0"),
    *("sinkhorn-linear:4:20:1e-08", "sinkhorn-v4:4:20:1e-06", "sinkhorn-v4:64:20:1e-06"),
    *("permutations:4:1:0.0", "permutations:6:1:0.0"),
)
"""Maps that are compiled for, as forms.py writes them."""


@dataclass(frozen=True)
class Operation:
    """An operation at one size, and the launches that it makes."""

    name: str
    sizes: str
    """Tokens, streams and channels, or matrices and their form."""
    launches: tuple[Launch, ...]
    least: int
    """Bytes of its inputs and results."""

    @property
    def moved(self) -> int:
        """Bytes that its launches move."""
        return sum(map(moved, self.launches))


@dataclass(frozen=True)
class Compiled:
    """What the compiler reports about one kernel."""

    kernel: str
    gpu: str
    registers: int
    """Number of registers of a thread."""
    spilled: int
    """Bytes of a thread's local memory."""
    shared: int
    """Bytes of a program's shared memory."""


def operations() -> Iterator[Operation]:
    """Every operation at every size."""
    for tokens, d, c, dtype in LAYERS:
        yield from _stream_operations(tokens, d, c, dtype)
    for form in FORMS:
        yield from _map_operations(4096, form)


def compiled(launch: Launch, gpu: str) -> Compiled:
    """Compile a kernel for a GPU as for this launch; its tensors are taken to be aligned, as torch allocates them."""
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found, import-untyped, unused-ignore]

    if dispatch.INTERPRETED:
        raise ValueError("kernels cannot be compiled while Triton interprets them; unset TRITON_INTERPRET")
    types = [TYPES[getattr(argument, "dtype", type(argument))] for argument in launch.arguments]
    names = launch.kernel.arg_names
    signature = dict(zip(names, types, strict=False)) | dict.fromkeys(launch.sizes, "constexpr")
    assert list(signature) == names, f"{names} of the kernel, {list(signature)} of its launch"
    source = ASTSource(launch.kernel, signature, constexprs=launch.sizes, attrs=_aligned(launch.arguments))
    options = {**OPTIONS, "num_warps": launch.num_warps}
    result = triton.compile(source, target=GPUTarget(*GPUS[gpu].target), options=options)
    read = _amd_resources if GPUS[gpu].target[0] == "hip" else _nvidia_resources
    registers, spilled = read(result.asm)
    return Compiled(launch.kernel.__name__.strip("_"), gpu, registers, spilled, result.metadata.shared)


def moved(launch: Launch) -> int:
    """Bytes that a launch moves: its tensors, once each, and twice what it writes and reads."""
    names = launch.kernel.arg_names
    twice = TWICE | ({"out"} if launch.sizes.get("adds") else set())
    tensors = [(name, value) for name, value in zip(names, launch.arguments, strict=False) if isinstance(value, Tensor)]
    return sum(_bytes(tensor) * (2 if name in twice else 1) for name, tensor in tensors)


def microseconds(num_bytes: int, gpu: str) -> float:
    """Predicted time of moving so many bytes."""
    return num_bytes / (REACHED * GPUS[gpu].bandwidth * 1e6)


def _stream_operations(tokens: int, d: int, c: int, dtype: torch.dtype) -> Iterator[Operation]:
    k = 2 * d + 2 * d * (2 * d - 1) // 2
    empty = partial(torch.empty, device="meta")
    x, y = empty(tokens, d, c, dtype=dtype), empty(tokens, c, dtype=dtype)
    weight, scale, bias = empty(k, d * c), empty(k), empty(k)
    projection, inverse_rms, logits = empty(tokens, k), empty(tokens), empty(tokens, k - 2 * d)
    mix, write = empty(tokens, d, d), empty(tokens, d)
    sizes = f"{tokens} x {d} x {c}, {str(dtype).removeprefix('torch.')}"
    parameters, saved = (weight, scale, bias), (projection, inverse_rms)
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "read": (triton_ops.read, (x, *parameters, 0.0, 1e-6)),
        "read, backward": (triton_ops.read_backward, (y, write, logits, x, *parameters, *saved, 0.0)),
        "write": (triton_ops.write, (x, mix, write, y)),
        "write, backward": (triton_ops.write_backward, (x, x, mix, write, y)),
    }
    for name, (function, arguments) in calls.items():
        yield _operation(name, sizes, function, arguments)


def _map_operations(count: int, form: str) -> Iterator[Operation]:
    num_streams, num_logits, _ = parsed(form)
    logits = torch.empty(count, num_logits, device="meta")
    matrix = torch.empty(count, num_streams, num_streams, device="meta")
    sizes = f"{count} x {form}"
    yield _operation("map", sizes, triton_ops.mixing, (logits, form))
    yield _operation("map, backward", sizes, triton_ops.mixing_backward, (logits, matrix, form))


def _operation(name: str, sizes: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Operation:
    with recorded() as launches:
        results = function(*arguments)
    everything = (*arguments, *(results if isinstance(results, tuple) else (results,)))
    least = sum(_bytes(value) for value in everything if isinstance(value, Tensor))
    return Operation(name, sizes, tuple(launches), least)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _aligned(arguments: tuple[Any, ...]) -> dict[tuple[int], list[list[Any]]]:
    """What Triton finds out of the arguments at run time: addresses and numbers that are multiples of 16."""
    return {
        (index,): [["tt.divisibility", 16]]
        for index, value in enumerate(arguments)
        if isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)
    }


def _nvidia_resources(asm: Any) -> tuple[int, int]:
    """Registers and bytes of the stack, by the cuobjdump that comes with Triton."""
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        command = [str(cuobjdump), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text))
    return int(numbers["REG"]), int(numbers["STACK"]) + int(numbers["LOCAL"])


def _amd_resources(asm: Any) -> tuple[int, int]:
    """Vector registers and bytes of private memory, as the assembly states them."""
    numbers = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count|private_segment_fixed_size):\s*(\d+)", asm["amdgcn"]))
    spilled = 4 * int(numbers["vgpr_spill_count"])
    return int(numbers["vgpr_count"]), max(spilled, int(numbers["private_segment_fixed_size"]))
