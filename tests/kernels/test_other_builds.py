"""The library is right in every build: of other compilers, on processors without AVX-512, and on arm64.

Each build runs the tests of the kernels that reach the library, in a program of its own (runner.cpp): here, or on a
processor that QEMU emulates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gomhc.kernels.stamp import has_stamp, stamp

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NATIVE = ROOT / "gomhc" / "kernels" / "native"
ARM = "aarch64-linux-gnu-g++"
COMPILERS = ["g++", "g++-11", "clang++-14", "clang++", ARM]
PROCESSORS = {
    "this": (),
    "avx2": ("qemu-x86_64", "-cpu", "max"),
    "baseline": ("qemu-x86_64", "-cpu", "Nehalem"),
    "neon": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
}
"""Name of the processor, or of the instruction set that the library must choose on it -> what emulates it."""

pytestmark = pytest.mark.slow


def run(*command, **environment):
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the library and its runner with a compiler, once."""
    folders = {}

    def build(compiler):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        if compiler not in folders:
            folder = tmp_path_factory.mktemp(compiler)
            cross = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64") if compiler == ARM else ()
            settings = (f"-DCMAKE_CXX_COMPILER={compiler}", f"-DPython_EXECUTABLE={sys.executable}", *cross)
            run("cmake", "-S", NATIVE, "-B", folder, *settings)
            run("cmake", "--build", folder)
            run(compiler, "-std=c++17", HERE / "runner.cpp", "-o", folder / "runner", "-ldl")
            folders[compiler] = folder
        return folders[compiler]

    return build


@pytest.fixture(scope="module")
def runner(built):
    """Command of the runner of a build on a processor."""

    def command(compiler, processor):
        emulator = PROCESSORS[processor]
        if emulator and shutil.which(emulator[0]) is None:
            pytest.skip(f"needs {emulator[0]}")
        folder = built(compiler)
        return [*emulator, str(folder / "runner"), str(folder / "_native.so")]

    return command


BUILDS = [
    (compiler, processor)
    for compiler in COMPILERS
    for processor in (("neon",) if compiler == ARM else ("this", "avx2", "baseline"))
]


@pytest.mark.parametrize(("compiler", "processor"), BUILDS)
def test_kernels_are_right_and_batch_invariant(runner, compiler, processor):
    command = runner(compiler, processor)
    if processor != "this":
        assert run(*command).strip() == processor
    tests = [HERE / f"test_{name}.py" for name in ("kernels", "maps", "streams", "batch_invariance")]
    options = ("-q", "-p", "other_library", "--runner", " ".join(command))
    printed = run(sys.executable, "-m", "pytest", *options, *tests, PYTHONPATH=f"{ROOT}:{ROOT / 'tests' / 'support'}")
    assert " passed" in printed
    assert " failed" not in printed


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_library_carries_the_stamp_of_its_sources(built, compiler):
    assert has_stamp(built(compiler) / "_native.so", stamp(NATIVE))


@pytest.mark.parametrize("compiler", [name for name in COMPILERS if name != ARM])
def test_the_library_has_code_for_every_instruction_set(built, compiler):
    code = run("objdump", "-d", built(compiler) / "_native.so")
    assert all(register in code for register in ("%xmm", "%ymm", "%zmm"))
