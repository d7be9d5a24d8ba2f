"""Ten minutes of random work for the compiled operations: `make soak`.

Three things at once: every operator against its plain version, 100,000 calls each; the library
under the address and undefined-behaviour sanitizers inside Python, with random shapes, dtypes, strides, threads and
forks; and the C++ code by itself under the same sanitizers and under the thread sanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
NATIVE = HERE.parent / "gomhc" / "kernels" / "native"
FLAGS = ["-O1", "-g", "-std=c++17", "-Wno-psabi", "-fno-omit-frame-pointer", "-pthread"]
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def progress(text):
    print(text, file=sys.stderr, flush=True)


# Against the plain versions
# ----------------------------------------------------------------------------------------------------------------------


def strided(tensor, rng):
    """The same numbers, and sometimes other strides."""
    kind = rng.randrange(4)
    if kind == 0 and tensor.dim() > 1:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if kind == 1 and tensor.dim() > 0:
        import torch

        return torch.stack((tensor, tensor + 1), -1)[..., 0]
    if kind == 2 and tensor.dim() > 2:
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    return tensor


class Worst:
    """The largest error of each operator, in units of its tolerance."""

    def __init__(self):
        self.calls, self.errors = Counter(), Counter()

    def compare(self, name, actual, expected, tolerance):
        self.calls[name] += 1
        for one, other, allowed in zip(actual, expected, tolerance, strict=True):
            if one.numel() == 0:
                continue
            difference = (one.double() - other.double()).abs().max().item()
            if not difference <= allowed:  # so is NaN
                raise AssertionError(
                    f"{name}: off by {difference:.3g}, allowed {allowed:.3g}, shape {tuple(one.shape)}"
                )
            self.errors[name] = max(self.errors[name], difference / allowed)


def leaves(tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def fuzz_map(rng, worst):
    import torch

    from gomhc.kernels import ops
    from gomhc.kernels.forms import single
    from gomhc.kernels.plain_map import orthostochastic

    d, s = rng.choice(
        [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 1), (5, 2), (8, 1)]
    )
    n, count = d * s, rng.randrange(0, 40)
    logits = 10 ** rng.uniform(-4, 8) * torch.randn(count, n * (n - 1) // 2)
    if rng.random() < 0.3:
        logits = torch.where(torch.rand_like(logits) < rng.random(), 0, logits)
    if rng.random() < 0.3:
        logits = logits * 10 ** torch.empty(count, 1).uniform_(-4, 4)
    logits, grad = strided(logits, rng), strided(torch.randn(count, d, d), rng)
    (leaf,) = leaves([logits])
    matrix = orthostochastic(leaf, d, s)
    eps = torch.finfo(torch.float32).eps
    form = single("go", d, s)
    worst.compare("orthostochastic", [ops.mixing(logits, form)], [matrix.detach()], [64 * eps])
    expected = torch.autograd.grad(matrix, leaf, grad.double())
    allowed = 64 * eps * max([1e-3, *grad.abs().flatten().tolist()])
    worst.compare("orthostochastic_backward", [ops.mixing_backward(logits, grad, form)], expected, [allowed])


def fuzz_read(rng, worst):
    import torch

    from gomhc.kernels import ops
    from gomhc.kernels.plain_streams import read_dynamic

    count, d, c, p = rng.randrange(0, 40), rng.randrange(1, 9), rng.randrange(1, 70), rng.randrange(0, 30)
    k = 2 * d + p
    shapes = ((count, d, c), (k, d * c), (k,), (k,))
    inputs = [strided(torch.randn(shape), rng) for shape in shapes]
    *results, projection, inverse_rms = ops.read(*inputs, 0.1, 1e-3)
    sources = leaves(inputs)
    expected = read_dynamic(*sources, 0.1, 1e-3)
    worst.compare("read", results, [tensor.detach() for tensor in expected], _allowed(expected, d * c))
    grads = [strided(torch.randn(tensor.shape), rng) for tensor in results]
    gradients = torch.autograd.grad(expected, sources, [grad.double() for grad in grads])
    actual = ops.read_backward(*grads, *inputs, projection, inverse_rms, 0.1)
    worst.compare("read_backward", actual, gradients, _allowed(gradients, d * c + count + k))


def fuzz_write(rng, worst):
    import torch

    from gomhc.kernels import ops
    from gomhc.kernels.plain_streams import write

    count, d, c = rng.randrange(0, 40), rng.randrange(1, 20), rng.randrange(1, 70)
    inputs = [strided(torch.randn(shape), rng) for shape in ((count, d, c), (count, d, d), (count, d), (count, c))]
    sources = leaves(inputs)
    expected = write(*sources)
    worst.compare("write", [ops.write(*inputs)], [expected.detach()], _allowed([expected], d))
    grad = strided(torch.randn(count, d, c), rng)
    gradients = torch.autograd.grad(expected, sources, grad.double())
    worst.compare("write_backward", ops.write_backward(grad, *inputs), gradients, _allowed(gradients, c + d))


def _allowed(tensors, terms):
    """A rounding for each term of a sum, at the size of the largest number."""
    eps = 2.0**-23
    return [(terms + 50) * eps * max(1.0, tensor.abs().max().item() if tensor.numel() else 0.0) for tensor in tensors]


def fuzz(calls, seed):
    """Every operator `calls` times; prints how often and how far from the plain version at most."""
    import torch

    rng, worst, started = random.Random(seed), Worst(), time.monotonic()
    torch.manual_seed(seed)
    said = started
    for done in range(calls):
        if done % 100 == 0:
            torch.set_num_threads(4 if done % 2000 == 0 else 1)
        for function in (fuzz_map, fuzz_read, fuzz_write):
            function(rng, worst)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            left = (said - started) / (done + 1) * (calls - done - 1)
            progress(f"fuzz: {done + 1:,} of {calls:,} calls of each operator, {left:.0f} s left")
    print(json.dumps({"calls": dict(worst.calls), "largest error over the allowed one": dict(worst.errors)}))


# Under sanitizers, in Python
# ----------------------------------------------------------------------------------------------------------------------


def sanitized(seconds, seed, folder):
    """Layers of random shapes and dtypes, in threads and in forked children, on the library in this folder."""
    import torch

    from gomhc import HyperConnection, Orthostochastic, kernels
    from gomhc.kernels import library, ops
    from gomhc.kernels.forms import single

    library.FOLDER = Path(folder)
    library.search.cache_clear()
    assert library.library() is not None
    rng, counts, end = random.Random(seed), Counter(), time.monotonic() + seconds

    def step(rng):
        d, s, c = rng.randrange(1, 7), rng.randrange(1, 4), rng.randrange(1, 40)
        batch = [rng.randrange(0, 9) for _ in range(rng.randrange(1, 3))]
        dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float64])
        convolution = torch.nn.Conv1d(c, c, 3, padding=1).to(dtype) if len(batch) == 2 and 0 not in batch else None
        branch = (lambda x: convolution(x.mT).mT) if convolution is not None else torch.tanh
        connection = HyperConnection(branch, c, Orthostochastic(num_streams=d, expressivity=s), start="near-identity")
        streams = (10 ** rng.uniform(-3, 3) * torch.randn(*batch, d, c)).to(dtype)
        streams = strided(streams, rng).detach().requires_grad_()
        cotangent = strided(torch.randn(*batch, d, c).to(dtype), rng)
        torch.set_num_threads(rng.randrange(1, 5))
        results = []
        for backend in ("native", "plain"):
            with kernels.use(backend):
                output = connection(streams)
                results.append((output, *torch.autograd.grad(output, streams, cotangent)))
        tolerance = 0.1 if dtype == torch.bfloat16 else 1e-3
        for one, other in zip(*results, strict=True):
            size = max(1.0, other.abs().max().item()) if other.numel() else 1.0
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * size)
        counts["layers"] += 1

    logits, x, weight = torch.randn(999, 28), torch.randn(99, 4, 8), torch.randn(36, 32)

    def operations():
        matrix = ops.mixing(logits, single("go", 4, 2))
        y, weights, mix_logits, *_ = ops.read(x, weight, weight[:, 0], weight[:, 1], 0.0, 1e-6)
        out = ops.write(x, matrix[:99], weights, y)
        return matrix, ops.mixing_backward(logits, matrix, single("go", 4, 2)), y, mix_logits, out

    while time.monotonic() < end:
        for _ in range(20):
            step(rng)
        failures = []

        def work(seed, failures=failures):
            try:
                own = random.Random(seed)
                for _ in range(5):
                    step(own)
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        counts["rounds of four threads"] += 1
        before = operations()
        child = os.fork()
        if child == 0:  # nothing of torch that would run on OpenMP, which hangs in a forked child
            status = 1
            try:
                status = 0 if all(map(torch.equal, operations(), before)) else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a forked child failed"
        counts["forks"] += 1
    print(json.dumps(counts))


def runtime(name):
    path = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return path if os.path.isabs(path) else None


def build(program, *flags, shared=False):
    sys.path.insert(0, str(HERE.parent / "gomhc" / "kernels"))
    from stamp import stamp

    source = NATIVE / "kernels.cpp" if shared else HERE / "kernels" / "sanitize.cpp"
    kind = ["-shared", "-fPIC", f"-DGOMHC_STAMP={stamp(NATIVE)}"] if shared else ["-I", str(NATIVE)]
    subprocess.run(["g++", *FLAGS, *flags, *kind, str(source), "-o", str(program)], check=True)


def start(name, command, folder, **environment):
    """A process whose output goes to files that can be read when it is done."""
    progress(f"started: {name}")
    with open(folder / f"{name}.out", "w") as out:
        return name, subprocess.Popen(command, stdout=out, env={**os.environ, **environment})


def run_all(seconds, calls, seed):
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    progress(f"building with sanitizers in {folder}")
    for part in ("library", "library/native"):
        (folder / part).mkdir()
    for path in NATIVE.iterdir():
        (folder / "library" / "native" / path.name).write_bytes(path.read_bytes())
    build(folder / "library" / "_native.so", *ADDRESS, shared=True)
    build(folder / "address", *ADDRESS)
    build(folder / "thread", "-fsanitize=thread")
    this, began = [sys.executable, str(Path(__file__).resolve())], time.monotonic()
    parts = [
        start(f"fuzz-{part}", [*this, "fuzz", "--calls", str(calls // 2), "--seed", str(seed + part)], folder)
        for part in (1, 2)
    ]
    preload = ":".join(filter(None, map(runtime, ("libasan.so", "libubsan.so"))))
    in_python = [*this, "sanitized", "--seconds", str(seconds // 2), "--seed", str(seed)]
    options = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0"}
    queue = [
        ("sanitized", [*in_python, "--folder", str(folder / "library")], {"LD_PRELOAD": preload}),
        ("address", [str(folder / "address"), str(seconds // 4), str(seed)], {}),
        ("thread", [str(folder / "thread"), str(seconds // 4), str(seed)], {}),
    ]
    failed = []
    for name, command, environment in queue:
        parts.append(start(name, command, folder, **environment, **options))
        if parts[-1][1].wait() != 0:
            failed.append(name)
    failed += [name for name, process in parts[:2] if process.wait() != 0]
    for name, _ in parts:
        print(f"{name}: {'FAILED' if name in failed else (folder / f'{name}.out').read_text().strip()}")
    verdict = f"failed: {', '.join(failed)}" if failed else "nothing found"
    print(f"{time.monotonic() - began:.0f} s, seed {seed}: {verdict}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=["all", "fuzz", "sanitized"])
    parser.add_argument("--seconds", type=int, default=600, help="of the sanitizers, all together")
    parser.add_argument("--calls", type=int, default=100_000, help="of each operator")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--folder")
    options = parser.parse_args()
    if options.part == "fuzz":
        return fuzz(options.calls, options.seed)
    if options.part == "sanitized":
        return sanitized(options.seconds, options.seed, options.folder)
    return run_all(options.seconds, options.calls, options.seed)


if __name__ == "__main__":
    sys.exit(main())
