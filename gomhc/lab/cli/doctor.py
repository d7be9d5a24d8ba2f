"""`gomhc doctor`: the kernels that run on this machine, and checks of the Triton kernels on its GPU."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from gomhc import kernels
from gomhc.kernels import dispatch
from gomhc.lab.cli.terminal import needs, print_table, table_console, with_progress, write_json
from gomhc.lab.cli.version import version
from gomhc.lab.files import require_writable

SMALL = (5, 24)
"""Tokens and channels of comparisons by Triton's interpreter."""
LARGE = (4096, 4096)
"""Tokens and channels on a GPU."""


def doctor(gpu: bool = False, compile_only: bool = False, json: Path | None = None) -> None:
    """Print which kernels run on this machine, and why.

    Args:
        gpu: Compile the Triton kernels for the GPU, compare them with the plain versions, time them and layers of other
            packages, and write a file that you can attach to an issue. The file names the GPU and the versions of
            packages, and nothing else about the machine. Without a GPU, set TRITON_INTERPRET=1 to
            compare the kernels on the CPU.
        compile_only: With --gpu, only compile the kernels for several GPUs, which this machine need not have, and print
            registers, spills and bytes.
        json: File that --gpu writes; by default gomhc-gpu.json.
    """
    version()
    print(f"{torch.get_num_threads()} threads, CUDA {'available' if torch.cuda.is_available() else 'not available'}")
    for name, reason in kernels.reasons().items():
        print(f"{name:8} {reason}")
    if compile_only and not gpu:
        raise ValueError("--compile-only works only together with --gpu; add --gpu")
    if json is not None and not gpu:
        raise ValueError("--json works only together with --gpu; add --gpu")
    if gpu:
        file = json or Path("gomhc-gpu.json")
        require_writable(file)
        report = _report(compile_only)
        if report:
            write_json(file, report)


def _report(compile_only: bool) -> dict[str, Any]:
    with needs("gpu", "gomhc doctor --gpu"):
        from gomhc.lab.bench import gpu_plan, gpu_report
    facts: dict[str, Any] = {"versions": gpu_report.versions()}
    if compile_only:
        return facts | {"plan": _plan(list(gpu_plan.GPUS))}
    if torch.cuda.is_available():
        here = gpu_report.architecture()
        facts["device"] = gpu_report.device_facts()
        if here in gpu_plan.GPUS and not dispatch.INTERPRETED:
            facts["plan"] = _plan([here])
        facts["agreement"] = _agreements("cuda", *LARGE)
        facts["times"] = [row for dtype in (torch.bfloat16, torch.float32) for row in _times(dtype)]
        return facts
    if dispatch.INTERPRETED:
        return facts | {"device": "Triton's interpreter", "agreement": _agreements("cpu", *SMALL)}
    print(
        "torch sees no GPU, so nothing was run; --compile-only compiles the kernels without a GPU, and "
        "TRITON_INTERPRET=1 compares them on the CPU"
    )
    return {}


def _plan(gpus: list[str]) -> list[dict[str, Any]]:
    from gomhc.lab.bench.gpu_plan import GPUS, REACHED, compiled, microseconds, operations

    planned = list(operations())
    jobs = [(operation, launch, gpu) for operation in planned for launch in operation.launches for gpu in gpus]
    results = list(with_progress((compiled(launch, gpu) for _, launch, gpu in jobs), len(jobs)))
    table = Table(title="Triton kernels, compiled ahead of time", caption=_assumptions(gpus, REACHED))
    for column in ("operation", "sizes, kernels", "MB", "/ least", *gpus):
        table.add_column(column, justify="left" if column in ("operation", "sizes, kernels") else "right", no_wrap=True)
    rows: list[dict[str, Any]] = []
    for operation in planned:
        times = {gpu: microseconds(operation.moved, gpu) for gpu in gpus}
        made = [result for (owner, _, _), result in zip(jobs, results, strict=True) if owner is operation]
        size, ratio = f"{operation.moved / 1e6:.3g}", f"{operation.moved / operation.least:.2f}"
        predicted = [f"{times[gpu]:.3g} µs" for gpu in gpus]
        table.add_row(operation.name, operation.sizes, size, ratio, *predicted)
        for index in range(0, len(made), len(gpus)):
            parts = made[index : index + len(gpus)]
            table.add_row("", parts[0].kernel, "", "", *(f"{r.registers} / {r.spilled} / {r.shared}" for r in parts))
        sizes = {"operation": operation.name, "sizes": operation.sizes, "least": operation.least}
        rows.append(sizes | {"moved": operation.moved, "microseconds": times, "kernels": list(map(asdict, made))})
    print_table(table_console(), table)
    spilling = sorted({f"{result.kernel} on {result.gpu}" for result in results if result.spilled})
    print(f"{len(results)} kernels compiled for {', '.join(f'{gpu} ({GPUS[gpu].example})' for gpu in gpus)}; ", end="")
    print(f"these spill: {', '.join(spilling)}" if spilling else "none spills")
    return rows


def _assumptions(gpus: list[str], reached: float) -> str:
    from gomhc.lab.bench.gpu_plan import GPUS

    bandwidths = ", ".join(f"{GPUS[gpu].bandwidth} TB/s ({GPUS[gpu].example})" for gpu in gpus)
    return (
        "sizes: tokens x streams x channels, or matrices x kind:streams:number:epsilon; MB: all tensors of the "
        "launches, each counted once; / least: as a multiple of the inputs and results of the operation; row of a "
        "kernel: registers per thread / bytes spilled / bytes of shared memory, from the compiler; row of an "
        f"operation: predicted µs = MB / ({reached:.0%} of {bandwidths}), without arithmetic and launches"
    )


def _agreements(device: str, tokens: int, channels: int) -> list[dict[str, Any]]:
    from gomhc.lab.bench.gpu_report import MOST_EPS, agreements

    rows = list(agreements(device, tokens, channels))
    for row in rows:
        verdict = "agrees" if row.agrees else f"DIFFERS by more than {MOST_EPS:.0f} eps"
        print(f"{row.operation:28} {row.dtype:9} {row.error:8.2f} eps  {verdict}")
    return [asdict(row) | {"agrees": row.agrees} for row in rows]


def _times(dtype: torch.dtype) -> list[dict[str, Any]]:
    from gomhc.lab.bench.gpu_report import layer_times

    rows = []
    for row in layer_times("cuda", *LARGE, dtype):
        time = row.problem if row.milliseconds is None else f"{row.milliseconds:.3f} ms"
        print(f"layer, forward and backward: {row.method:28} {row.dtype:9} {time}")
        rows.append(asdict(row))
    return rows
