"""Benchmarks compare what they say they compare; how long anything takes is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

import gomhc
from gomhc import kernels
from gomhc.lab.bench import layer as bench_layer
from gomhc.lab.bench import projection as bench_projection
from gomhc.lab.bench import step as bench_step
from gomhc.lab.bench import timing
from gomhc.lab.bench.memory import peak_megabytes
from gomhc.lab.bench.projection import LARGEST_SOLVE
from gomhc.lab.bench.timing import Contender, Turn

TINY = {
    "projection": ("--num-matrices", "8", "--grow"),
    "layer": ("--tokens", "8", "--num-channels", "16"),
    "layer-growth": ("--tokens", "8", "--num-channels", "4"),
    "step": (
        "--batch-size",
        "1",
        "--context-length",
        "8",
        "--num-layers",
        "1",
        "--num-channels",
        "12",
        "--num-heads",
        "2",
        "--vocab-size",
        "50",
    ),
    "decode": ("--text", "4", "--prompt", "5"),
}
METHODS = {
    "projection": {"linalg.solve", "go", "kronecker of two go", "mHC-lite's product", "20 Sinkhorn iterations"}
    | {f"go ({name})" for name in kernels.available()}
    | {"go, exponential", "go, householder", "go, givens"}
    | {bench_projection.PEER for module in [bench_projection.PEER_MODULE] if timing.is_installed(module)}
    | set(gomhc.PARAMETRIZATIONS),
    "layer": {"roofline", *bench_layer.METHODS, "permutations"}
    | {f"{key} (plain)" for key in (*bench_layer.METHODS, "permutations")}
    | {"go, bfloat16", "go, float16", "go, static", "go, static, bfloat16"}
    | {peer for peer, module in bench_layer.PEERS.items() if timing.is_installed(module)},
    "layer-growth": {"go", "sinkhorn-v4", "identity", "kronecker of two go"},
    "step": {"plain residual", "go", "permutations", "kronecker", "sinkhorn", "identity", "go, static"},
    "decode": {"plain residual", "go", "sinkhorn", "identity", "go, static"},
}


@pytest.fixture(scope="module", params=TINY)
def benchmark(request, tmp_path_factory):
    """A benchmark's name, what it printed, its record and the folder it was run in."""
    folder = tmp_path_factory.mktemp(request.param)
    common = ("--rounds", "2", "--threads", "1", "--json", "rows.json")
    command = [sys.executable, "-m", "gomhc", "bench", request.param, *common, *TINY[request.param]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return request.param, done, json.loads((folder / "rows.json").read_text()), folder


def test_every_method_is_measured_and_printed(benchmark):
    name, done, record, _ = benchmark
    assert {row["method"] for row in record["rows"]} == METHODS[name]
    for method in METHODS[name]:
        assert f"│ {method} " in done.stdout
    assert "wrote rows.json" in done.stdout


def test_a_record_says_how_it_was_made(benchmark):
    name, _, record, _ = benchmark
    assert record["benchmark"] == name
    assert record["options"]["threads"] == 1
    assert record["options"]["rounds"] == 2
    assert record["versions"] == {"gomhc": gomhc.__version__, "torch": torch.__version__}
    for row in record["rows"]:
        assert set(row) == {"method", "sizes", "milliseconds", "spread", "megabytes", "ratios"}
        assert row["milliseconds"] > 0
        assert row["spread"] >= 0
        assert row["megabytes"] > 0 or row["method"] in ("identity", "unconstrained")  # these hand on what they have


def has_solve(row) -> bool:
    """Whether `torch.linalg.solve` can be measured at the sizes of a row."""
    return row["sizes"].get("d", 0) * row["sizes"].get("s", 0) <= LARGEST_SOLVE


def test_ratios_are_those_of_the_times_at_equal_sizes(benchmark):
    name, _, record, _ = benchmark
    times = {(row["method"], *row["sizes"].values()): row["milliseconds"] for row in record["rows"]}
    assert len(times) == len(record["rows"])
    for row in record["rows"]:
        assert row["ratios"] or not has_solve(row)
        for reference, ratio in row["ratios"].items():
            assert ratio == pytest.approx(row["milliseconds"] / times[reference, *row["sizes"].values()])
    first = {"projection": "linalg.solve", "layer": "roofline", "layer-growth": "go"}.get(name, "plain residual")
    assert all(first in row["ratios"] for row in record["rows"] if has_solve(row))


def test_progress_is_some_plain_lines_where_there_is_no_terminal(benchmark):
    _, done, record, _ = benchmark
    lines = done.stderr.splitlines()
    total = 3 * len(record["rows"])  # the warm-up and two rounds
    assert lines[-1].startswith(f"[{total}/{total}] round 2: ")
    assert len(lines) <= 40
    assert all(line.startswith("[") for line in lines)
    assert "\x1b" not in done.stdout + done.stderr


def test_growth_is_measured_and_plotted(benchmark):
    name, done, record, folder = benchmark
    if name != "projection":
        return
    grid = {(d, s) for d in (1, 2, 4, 8, 16, 32, 64) for s in (1, 2, 3)}
    for method, sizes in (("go", grid), ("linalg.solve", grid - {(64, 3)})):
        assert {(r["sizes"]["d"], r["sizes"]["s"]) for r in record["rows"] if r["method"] == method} == sizes
    of_products = {(r["sizes"]["d"], r["sizes"]["s"]) for r in record["rows"] if r["method"] == "kronecker of two go"}
    assert of_products == {(d, s) for d, s in grid if d >= 16}
    assert "wrote bench-projection.png" in done.stdout
    assert (folder / "bench-projection.png").read_bytes().startswith(b"\x89PNG")


def test_every_contender_has_one_turn_in_each_round():
    calls = []
    contenders = [Contender(name, {}, lambda name=name: calls.append(name)) for name in "abcdef"]
    found = list(timing.turns(contenders, rounds=3))
    assert len(found) == timing.num_turns(contenders, rounds=3)
    orders = [[turn.contender.method for turn in found if turn.round == number] for number in range(4)]
    assert orders[0] == list("abcdef")
    assert all(sorted(order) == list("abcdef") for order in orders)
    assert len(set(map(tuple, orders))) == 4
    assert set(calls) == set("abcdef")


def test_timings_have_medians_quartiles_and_ratios():
    def run() -> None: ...

    slow, fast, other = (
        Contender("slow", {"d": 4}, run),
        Contender("fast", {"d": 4}, run),
        Contender("x", {"d": 8}, run),
    )
    found = [Turn(slow, 0, 999.0, 5.0), Turn(fast, 0, 999.0, 6.0), Turn(other, 0, 999.0, 7.0)]
    for number, times in enumerate([(8, 1, 3), (6, 2, 3), (4, 3, 3), (100, 50, 3), (5, 0.5, 3)], start=1):
        found += [Turn(one, number, float(time)) for one, time in zip((slow, fast, other), times, strict=True)]
    rows = timing.timings(found, ["fast"])
    assert [row.method for row in rows] == ["slow", "fast", "x"]
    assert [row.milliseconds for row in rows] == [6, 2, 3]  # the warm-up does not count
    assert [row.spread for row in rows] == [3, 2, 0]
    assert [row.megabytes for row in rows] == [5, 6, 7]
    assert [row.ratios for row in rows] == [{"fast": 3}, {"fast": 1}, {}]


def test_peak_memory_is_the_most_that_is_held_at_once():
    x = torch.ones(1000, 250)  # 1 MB, held before

    def run() -> None:
        y = x + 1
        del y
        y = x.exp()
        z = y * 2
        del y, z

    assert peak_megabytes(run) == pytest.approx(2, rel=1e-3)
    leaf = x.clone().requires_grad_()
    # The result, which is kept for backward, and the gradient.
    assert peak_megabytes(lambda: leaf.exp().backward(x)) == pytest.approx(2, rel=1e-3)


def test_profiles_write_nothing_to_standard_error(capfd):
    peak_megabytes(lambda: torch.ones(3))
    assert capfd.readouterr().err == ""


def test_references_compute_what_they_stand_for(generator):
    def logits(p):
        return torch.randn(32, p, generator=generator)

    for d, s in ((4, 2), (8, 2), (3, 1)):
        go, z = gomhc.Orthostochastic(num_streams=d, expressivity=s), logits((d * s) * (d * s - 1) // 2)
        torch.testing.assert_close(bench_projection.Solve(num_streams=d, expressivity=s)(z), go(z), rtol=0, atol=1e-5)
    z = logits(16)
    torch.testing.assert_close(bench_projection.sinkhorn_iterations(z), gomhc.Sinkhorn(num_streams=4)(z))
    z = logits(24)
    torch.testing.assert_close(bench_projection.mhc_lite_product(4)(z), gomhc.Permutations(num_streams=4)(z))


def test_every_kernel_that_is_there_has_a_row_and_runs_under_its_name(monkeypatch):
    used = []

    @contextmanager
    def use(name):
        used.append(name)
        yield

    monkeypatch.setattr(kernels, "available", lambda: ["plain", "invented"])
    monkeypatch.setattr(kernels, "use", use)
    found = bench_projection.Projection(num_matrices=2).contenders()
    invented = [contender for contender in found if contender.method == "go (invented)"]
    assert [contender.sizes["d"] for contender in invented] == [4, 8]
    for contender in invented:
        contender.run()
    assert used == ["invented", "invented"]
    next(one for one in bench_layer.Layer(tokens=2, num_channels=8).contenders() if one.method == "go (plain)").run()
    assert used[2:] == ["plain"]


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(bench_layer.PEERS, bench_layer.DEEPSEEK, "no_such_module")
    layer = bench_layer.Layer(tokens=2, num_channels=8)
    assert f"not installed: {bench_layer.DEEPSEEK}" in "; ".join(layer.remarks())
    assert bench_layer.DEEPSEEK not in {contender.method for contender in layer.contenders()}


def test_the_sinkhorn_of_a_peer_has_a_row_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(bench_projection, "PEER_MODULE", "no_such_module")
    projection = bench_projection.Projection(num_matrices=2)
    assert f"not installed: {bench_projection.PEER}" in "; ".join(projection.remarks())
    assert bench_projection.PEER not in {contender.method for contender in projection.contenders()}
    shapes = []

    def sinkhorn_knopps(logits):
        shapes.append(tuple(logits.shape))
        return logits.exp()

    monkeypatch.setitem(sys.modules, "no_such_module", SimpleNamespace(sinkhorn_knopps=sinkhorn_knopps))
    next(one for one in projection.contenders() if one.method == bench_projection.PEER).run()
    assert shapes == [(2, 4, 4)]


def test_the_default_step_is_that_of_the_papers_model(monkeypatch):
    configs = []
    monkeypatch.setattr(bench_step.Step, "_step", lambda self, config: lambda: configs.append(config))
    for contender in bench_step.Step().contenders():
        contender.run()
    assert configs[0] == gomhc.models.GPTConfig()
    assert configs[1] == gomhc.models.GPTConfig(mixing=gomhc.Orthostochastic(num_streams=4, expressivity=2))


def test_options_must_count_something():
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 1, got 0"):
        bench_step.Step(rounds=0)


def test_threads_are_pinned_and_a_missing_plotter_is_noticed_before_anything_is_measured():
    code = """
import sys, torch
from gomhc.lab.cli.bench import Layer, Projection, bench
sys.modules["matplotlib"] = None
bench(Layer(tokens=2, num_channels=4, rounds=1, threads=3))
assert torch.get_num_threads() == 3
bench(Projection(grow=True, threads=1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "--grow needs matplotlib; install it with: pip install 'gomhc[report]'"
