"""Build the C++ kernels, stamped with the sources they are built from. Everything else is in pyproject.toml."""

from pathlib import Path
from runpy import run_path

from setuptools import Extension, setup

KERNELS = Path("gomhc/kernels")
SOURCES = KERNELS / "native"
stamp = run_path(str(Path(__file__).parent / KERNELS / "stamp.py"))["stamp"]

setup(
    ext_modules=[
        Extension(
            "gomhc.kernels._native",  # loaded by ctypes, not imported; without a compiler it is left out
            sources=[str(SOURCES / "kernels.cpp")],
            depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
            define_macros=[("GOMHC_STAMP", stamp(SOURCES))],
            extra_compile_args=["-O3", "-std=c++17", "-Wno-psabi"],
            language="c++",
            optional=True,
        )
    ]
)
