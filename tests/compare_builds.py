"""Speed of the library as several compilers build it, side by side in one run.

python tests/compare_builds.py g++-12 g++-11 clang++-14

Builds take turns within each round, and what is printed is the median over rounds of a build's time over that of the
first build in the same round, so that a machine that slows down slows them all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from gomhc import HyperConnection, Orthostochastic
from gomhc.kernels import dispatch, library, ops
from gomhc.kernels.forms import single

NATIVE = Path(library.__file__).parent / "native"


def build(compiler, folder):
    settings = (f"-DCMAKE_CXX_COMPILER={compiler}", f"-DPython_EXECUTABLE={sys.executable}")
    for command in (("-S", NATIVE, "-B", folder, *settings), ("--build", folder)):
        subprocess.run(["cmake", *map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return library._Search(library._loaded(folder / "_native.so"), "")


def map_forward(tokens):
    logits = torch.randn(tokens, 28)
    return lambda: ops.mixing(logits, single("go", 4, 2))


def map_backward(tokens):
    logits, grad = torch.randn(tokens, 28), torch.randn(tokens, 4, 4)
    return lambda: ops.mixing_backward(logits, grad, single("go", 4, 2))


def layer(tokens, backward):
    connection = HyperConnection(torch.nn.Identity(), 384, Orthostochastic(num_streams=4))
    streams = torch.randn(tokens, 4, 384, requires_grad=backward)

    def step():
        output = connection(streams)
        if backward:
            output.backward(streams.detach())

    return step


WORK = {
    "map forward": map_forward(8192),
    "map backward": map_backward(8192),
    "layer forward": layer(1024, backward=False),
    "layer forward and backward": layer(1024, backward=True),
}


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compilers", nargs="+", help="the first one is what the others are compared to")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dispatch.COMPILED["cpu"] = "native"
    with tempfile.TemporaryDirectory() as folder:
        builds = {compiler: build(compiler, Path(folder) / compiler) for compiler in options.compilers}
    print(f"time over that of {options.compilers[0]}; {torch.get_num_threads()} threads, {options.rounds} rounds")
    for name, work in WORK.items():
        times = {compiler: [] for compiler in builds}
        for _ in range(options.rounds + 3):
            for compiler, loaded in builds.items():
                library.search = lambda loaded=loaded: loaded
                times[compiler].append(seconds(work))
        first = times[options.compilers[0]][3:]
        for compiler, own in times.items():
            ratio = median(one / other for one, other in zip(own[3:], first, strict=True))
            print(f"{name:28} {compiler:12} {1e6 * median(own[3:]):9.0f} us   {ratio:.2f}")


if __name__ == "__main__":
    sys.exit(main())
