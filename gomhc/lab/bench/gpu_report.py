"""What the owner of a GPU sends back: whether the Triton kernels agree with the plain ones, and how long they take.

Errors are the largest difference from float64 over the largest value, or over one where all are smaller, in units of
the dtype's eps. d = num_streams, c = channels
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from gomhc import kernels
from gomhc.birkhoff import PARAMETRIZATIONS
from gomhc.kernels.triton_ops import has_map
from gomhc.lab.bench.layer import DEEPSEEK, PEERS, forward_and_backward
from gomhc.lab.bench.projection import with_kernels
from gomhc.layers import HyperConnection

NUM_STREAMS = 4
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_EPS = 32.0
"""Largest error of a kernel that agrees."""
ROUNDS = 20
PACKAGES = ("gomhc", "torch", "triton", "transformers", "liger-kernel", "tile-kernels")


@dataclass(frozen=True)
class KernelAgreement:
    """How far a kernel is from float64, results and gradients."""

    operation: str
    dtype: str
    error: float
    """Largest difference, in eps of the dtype."""

    @property
    def agrees(self) -> bool:
        return self.error <= MOST_EPS  # false for NaN


@dataclass(frozen=True)
class LayerTime:
    """Time of a hyper-connection, forward and backward."""

    method: str
    dtype: str
    milliseconds: float | None
    """Median over rounds; None where it failed."""
    problem: str = ""


def agreements(device: str, tokens: int, channels: int) -> Iterator[KernelAgreement]:
    """Compare every map that has kernels, and read and write in every dtype."""
    for key, kind in PARAMETRIZATIONS.items():
        mixing = kind(num_streams=NUM_STREAMS)
        if mixing.kernel is not None and has_map(mixing.kernel):
            logits = _random(tokens, mixing.num_logits, device=device)
            yield _agreement(f"map of {key}", mixing, [logits])
    k = 2 * NUM_STREAMS + NUM_STREAMS**2
    for dtype in DTYPES:
        streams = _random(tokens, NUM_STREAMS, channels, device=device).to(dtype)
        weight = _random(k, NUM_STREAMS * channels, device=device) / channels
        yield _agreement("read", _read, [streams, weight, *_random(2, k, device=device)])
        mix, weights = (
            _random(tokens, NUM_STREAMS, NUM_STREAMS, device=device),
            _random(tokens, NUM_STREAMS, device=device),
        )
        output = _random(tokens, channels, device=device).to(dtype)
        yield _agreement("write", kernels.write, [streams, mix, weights, output])
        yield _agreement("write, shared", kernels.write, [streams, mix[0], weights[0], output])


def layer_times(device: str, tokens: int, channels: int, dtype: torch.dtype) -> Iterator[LayerTime]:
    """Time our layer, in Triton and in plain torch, and those of others that are installed."""
    makers: dict[str, Callable[[Tensor], Callable[[], object]]] = {
        "copies of the streams, 8": _copies,
        **{key: _ours(key) for key in ("go", "sinkhorn-v4")},
        **{f"{key} (plain)": _plain(_ours(key)) for key in ("go", "sinkhorn-v4")},
        DEEPSEEK: _deepseek_v4,
        "Liger-Kernel, mHC": _liger,
        "TileKernels, mHC": _tile_kernels,
    }
    for method, make in makers.items():
        streams = _random(tokens, NUM_STREAMS, channels, device=device).to(dtype)
        try:
            yield LayerTime(method, _name(dtype), _milliseconds(make(streams)))
        except ImportError as error:
            yield LayerTime(method, _name(dtype), None, f"not installed: {error.name}")
        except Exception as error:  # of somebody else's package, on a GPU that nobody has tried
            yield LayerTime(method, _name(dtype), None, f"{type(error).__name__}: {error}".splitlines()[0])


def versions() -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def device_facts() -> dict[str, Any]:
    """The GPU: its name, architecture, memory and number of multiprocessors."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "architecture": architecture(),
        "gigabytes": properties.total_memory / 1e9,
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


def architecture() -> str:
    """Name of the GPU's architecture, as `gpu_plan.GPUS` has it."""
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _random(*shape: int, device: str) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _read(streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return kernels.read(streams, weight, scale, bias, read_offset=0.25, epsilon=1e-6)


def _agreement(operation: str, function: Callable[..., Any], inputs: list[Tensor]) -> KernelAgreement:
    results = _results("plain", function, inputs)
    cotangents = [_random(*result.shape, device=str(result.device)).to(result.dtype) for result in results]
    actual = _results_and_gradients("triton", function, inputs, cotangents)
    wide = [[tensor.double() for tensor in tensors] for tensors in (inputs, cotangents)]
    expected = _results_and_gradients("plain", function, *wide)
    errors = [
        ((ours.double() - exact).abs().max() / exact.abs().max().clamp(min=1)).item() / torch.finfo(ours.dtype).eps
        for ours, exact in zip(actual, expected, strict=True)
    ]
    largest = max(errors, key=lambda error: (math.isnan(error), error))
    return KernelAgreement(operation, _name(inputs[0].dtype), largest)


def _results(version: str, function: Callable[..., Any], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    with kernels.use(version):
        results = function(*inputs)
    return results if isinstance(results, tuple) else (results,)


def _results_and_gradients(
    version: str, function: Callable[..., Any], inputs: list[Tensor], cotangents: list[Tensor]
) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    results = _results(version, function, leaves)
    with kernels.use(version):
        return [*results, *torch.autograd.grad(results, leaves, cotangents)]


def _milliseconds(run: Callable[[], object]) -> float:
    def once() -> float:
        torch.cuda.synchronize()
        start = perf_counter()
        run()
        torch.cuda.synchronize()
        return 1e3 * (perf_counter() - start)

    for _ in range(3):
        once()
    return statistics.median(once() for _ in range(ROUNDS))


def _copies(streams: Tensor) -> Callable[[], object]:
    copy = torch.empty_like(streams)

    def run() -> None:
        for _ in range(8):
            copy.copy_(streams)

    return run


def _ours(key: str) -> Callable[[Tensor], Callable[[], object]]:
    def make(streams: Tensor) -> Callable[[], object]:
        mixing = PARAMETRIZATIONS[key](num_streams=NUM_STREAMS)
        generator = torch.Generator().manual_seed(0)
        layer = HyperConnection(lambda x: x, streams.shape[-1], mixing, start="near-identity", generator=generator)
        layer.to(streams.device)
        return forward_and_backward(layer, streams, layer.parameters())

    return make


def _plain(make: Callable[[Tensor], Callable[[], object]]) -> Callable[[Tensor], Callable[[], object]]:
    return lambda streams: with_kernels("plain", make(streams))


def _deepseek_v4(streams: Tensor) -> Callable[[], object]:
    """Hugging Face's module, with the residual update of its decoder layer."""
    modeling = import_module(PEERS[DEEPSEEK])
    config = modeling.DeepseekV4Config(hc_mult=NUM_STREAMS, hidden_size=streams.shape[-1])
    module = modeling.DeepseekV4HyperConnection(config).to(streams.device)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.02)

    def layer(x: Tensor) -> Tensor:
        post, comb, branch_input = module(x)
        post, comb = post.to(x.dtype), comb.to(x.dtype)
        return post.unsqueeze(-1) * branch_input.unsqueeze(-2) + comb.transpose(-1, -2) @ x

    return forward_and_backward(layer, streams[None], module.parameters())


def _liger(streams: Tensor) -> Callable[[], object]:
    module = import_module("liger_kernel.transformers.mhc")
    exact = streams.dtype == torch.float32
    sizes = {"hc": NUM_STREAMS, "c": streams.shape[-1], "phi_dtype": streams.dtype, "allow_fp32": exact}
    layer = module.LigerMHC(nn.Identity(), **sizes).to(streams.device)
    return forward_and_backward(layer, streams, layer.parameters())


def _tile_kernels(streams: Tensor) -> Callable[[], object]:
    functional = import_module("tile_kernels.modeling.mhc.functional")
    d, device = NUM_STREAMS, str(streams.device)
    fn = 0.02 * _random(d * (d + 2), d * streams.shape[-1], device=device)
    scale, base = torch.ones(3, device=device), torch.zeros(d * (d + 2), device=device)
    parameters = [tensor.requires_grad_() for tensor in (fn, scale, base)]

    def layer(x: Tensor) -> Tensor:
        branch_input, (post, comb) = functional.mhc_pre(x, *parameters, post_mult_value=2.0, sinkhorn_repeat=20)
        result: Tensor = functional.mhc_post(branch_input, x, post, comb)
        return result

    return forward_and_backward(layer, streams[None], parameters)
