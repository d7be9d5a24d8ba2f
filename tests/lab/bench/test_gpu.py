"""The Triton kernels compile for GPUs that are not here, without spills; the report on a GPU says what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from gomhc.lab.bench import gpu_plan, gpu_report

COMPILE = """
import sys
from gomhc.lab.bench import gpu_plan

kernels = set()
for operation in gpu_plan.operations():
    for launch in operation.launches:
        name = launch.kernel.__name__.strip("_")
        if name in kernels or name not in sys.argv[2:]:
            continue
        kernels.add(name)
        result = gpu_plan.compiled(launch, sys.argv[1])
        assert result.registers > 0 and result.spilled == 0, result
        print(result.kernel)
"""


def compiling(tmp_path, *command):
    """Run in another process: in this one Triton has nothing but the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_compile_for_an_h100_without_spills(tmp_path):
    names = ["write_backward", "sinkhorn_backward"]
    assert sorted(compiling(tmp_path, "-c", COMPILE, "sm_90", *names).split()) == sorted(names)


@pytest.mark.slow
def test_every_kernel_compiles_for_every_gpu_without_spills(tmp_path):
    file = tmp_path / "plan.json"
    compiling(tmp_path, "-m", "gomhc", "doctor", "--gpu", "--compile-only", "--json", str(file))
    plan = json.loads(file.read_text())["plan"]
    compiled = [kernel for operation in plan for kernel in operation["kernels"]]
    assert {kernel["gpu"] for kernel in compiled} == set(gpu_plan.GPUS)
    assert [kernel for kernel in compiled if kernel["spilled"] or not kernel["registers"]] == []
    kernels = {launch.kernel.__name__.strip("_") for o in gpu_plan.operations() for launch in o.launches}
    assert {kernel["kernel"] for kernel in compiled} == kernels


def test_write_moves_no_more_than_it_must_and_read_reads_the_streams_twice():
    for operation in gpu_plan.operations():
        if operation.name.startswith("write"):
            assert operation.moved == operation.least
        if operation.name.startswith("read"):
            assert operation.least < operation.moved < 2 * operation.least


def test_sinkhorn_is_one_launch_forward_and_one_backward():
    launches = [len(o.launches) for o in gpu_plan.operations() if "sinkhorn" in o.sizes]
    assert launches
    assert set(launches) == {1}


def test_prediction_is_bytes_over_the_bandwidth_that_is_reached():
    assert gpu_plan.microseconds(2_680_000_000, "sm_90") == pytest.approx(1000)


def test_report_without_a_gpu_compares_all_kernels_by_the_interpreter(tmp_path):
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "gomhc", "doctor", "--gpu", "--json", str(file)]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert set(report) == {"versions", "device", "agreement"}
    assert all(row["agrees"] for row in report["agreement"]), report["agreement"]
    read = {row["dtype"] for row in report["agreement"] if row["operation"] == "read"}
    assert read == {"float32", "bfloat16", "float16"}
    assert "map of sinkhorn-v4" in {row["operation"] for row in report["agreement"]}


def test_without_a_gpu_one_line_says_so_and_nothing_is_written(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    printed = compiling(tmp_path, "-m", "gomhc", "doctor", "--gpu", "--json", str(tmp_path / "report.json"))
    assert "torch sees no GPU, so nothing was run" in printed
    assert not (tmp_path / "report.json").exists()


def test_a_kernel_that_gives_nan_does_not_agree():
    assert not gpu_report.KernelAgreement("read", "float32", float("nan")).agrees
    assert not gpu_report.KernelAgreement("read", "float32", 33.0).agrees
    assert gpu_report.KernelAgreement("read", "float32", 1.0).agrees


def test_what_fails_in_another_package_is_told_and_not_raised(monkeypatch):
    monkeypatch.setattr(gpu_report, "_milliseconds", lambda run: 1.0)
    rows = {row.method: row for row in gpu_report.layer_times("cpu", 3, 8, torch.float32)}
    assert rows["go"].milliseconds == 1.0
    assert rows["Liger-Kernel, mHC"].milliseconds is None
    assert "liger_kernel" in rows["Liger-Kernel, mHC"].problem
