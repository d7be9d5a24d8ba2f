"""Run tests of the kernels on a library that this process cannot load, as a pytest plugin.

`python -m pytest -p other_library --runner "qemu-aarch64 runner _native.so" tests/kernels/test_kernels.py` sends what
the tests compute in C++ to that program (kernels/runner.cpp).
"""

from __future__ import annotations

import ctypes
import shlex
import struct
import subprocess
from functools import partial
from threading import Lock


class OtherLibrary(ctypes.CDLL):
    """Stands for the library that ctypes loads, with the same functions; it loads none."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._name = repr(command)
        self.instruction_set = self.process.stdout.readline().strip()
        assert self.instruction_set, f"{command} said nothing"
        self.one_at_a_time = Lock()

    def gomhc_instruction_set(self):
        return self.instruction_set

    def __getattr__(self, function):
        return partial(self._run, function)

    def _run(self, function, task, threads):
        sizes = {tensor.data_ptr(): tensor.nbytes for tensor in task.tensors}
        addresses = [getattr(task, name) for name in task.shapes]
        buffers = [ctypes.string_at(address, sizes[address]) if address else b"" for address in addresses]
        if hasattr(task, "parts"):  # their pointer is behind those of the tensors
            addresses.append(ctypes.addressof(task.parts.contents))
            buffers.append(bytes(task.form))
        header = struct.pack("24siii", function.encode(), threads, len(buffers), ctypes.sizeof(task))
        message = [header, bytes(task), *(part for data in buffers for part in (struct.pack("q", len(data)), data))]
        with self.one_at_a_time:
            self.process.stdin.write(b"".join(message))
            self.process.stdin.flush()
            results = [self.process.stdout.read(len(data)) for data in buffers]
        for address, before, after in zip(addresses, buffers, results, strict=True):
            assert len(before) == len(after), f"{function} failed in {self.process.args}"
            if before != after:
                ctypes.memmove(address, after, len(after))


def pytest_addoption(parser):
    parser.addoption("--runner", required=True, help="command of the program that has the library")


def pytest_configure(config):
    from gomhc import kernels
    from gomhc.kernels import dispatch, library

    other = library._Search(OtherLibrary(shlex.split(config.getoption("--runner"))), "")
    library.search = lambda: other
    kernels.is_direct = lambda: False  # a task without its tensors cannot be sent
    dispatch.COMPILED["cpu"] = "native"


def pytest_report_header():
    from gomhc.kernels import library

    return f"kernels: {library.instruction_set()}"


def pytest_collection_modifyitems(items):
    """Keep the tests that reach the library: not those of torch's or Triton's versions, nor of a build of their own."""
    items[:] = [
        item
        for item in items
        if getattr(item, "callspec", None) is None or item.callspec.params.get("backend", "native") == "native"
        if "triton" not in item.name and "sanitizers" not in item.name
    ]
