"""Write the tables of times in README.md and docs/*.md from the files that `gomhc bench` wrote to this folder.

    gomhc bench projection --json benchmarks/projection.json    # likewise layer, step and decode
    gomhc bench layer --num-streams 2 --json benchmarks/layer/2.json
    gomhc bench layer --num-streams 8 --tokens 2048 --json benchmarks/layer/8.json
    gomhc bench layer --num-streams 16 --tokens 1024 --json benchmarks/layer/16.json
    gomhc bench projection --grow --json benchmarks/growth.json
    gomhc bench layer-growth --json benchmarks/layer_growth.json
    gomhc bench step --compile --num-channels 128 --num-heads 4 --vocab-size 512 --batch-size 16 --context-length 128 \\
        --json benchmarks/step_compiled.json
    gomhc bench step --num-channels 128 --num-heads 4 --vocab-size 512 --batch-size 16 --context-length 128 \\
        --threads 1 --json benchmarks/small_step.json
    python benchmarks/write_tables.py

Each table stands between `<!-- benchmark: NAME -->` and `<!-- end of benchmark -->`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gomhc.lab.bench.layer_growth import mixings
from gomhc.lab.bench.operations import COUNTS, ENTRIES, PRODUCT_OF_GO, layer_operations, map_operations
from gomhc.lab.bench.projection import STREAMS

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "docs"))

from places import fill  # noqa: E402

Rows = list[dict[str, Any]]
UNCOUNTED = ("identity", "unconstrained", "20 Sinkhorn iterations", "mHC-lite's product", "permutations", "kronecker")
"""Methods whose times over d are not in the table: there is nothing to compute, or the count is of another kind."""
BY_EXPRESSIVITY = ("go", "linalg.solve", PRODUCT_OF_GO)
"""Methods that are measured for several s."""


def projection(rows: Rows) -> str:
    """Times of the maps, as multiples of go's at the same number of streams."""
    times = {(row["method"], row["sizes"]["d"]): row["milliseconds"] for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    table = ["| time / go of a map, forward and backward, 16,384 matrices | d = 4 | d = 8 |", "|---|---|---|"]
    for method in methods:
        cells = [_ratio(times[method, d], times["go", d]) if (method, d) in times else "" for d in (4, 8)]
        table.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(table)


def layer(rows: Rows) -> str:
    """Times of a layer, as multiples of go's and of the roofline."""
    times = {row["method"]: row["milliseconds"] for row in rows}
    table = [
        "| layer, forward and backward, 4,096 tokens, d = 4, c = 384 | time / go | time / roofline |",
        "|---|---|---|",
    ]
    for method, time in times.items():
        table.append(f"| {method} | {_ratio(time, times['go'])} | {_ratio(time, times['roofline'])} |")
    return "\n".join(table)


def layer_sizes() -> str:
    """Times of a layer at several numbers of streams, each as a multiple of another's."""
    files = {2: "layer/2", 4: "layer", 8: "layer/8", 16: "layer/16"}
    times = {d: {row["method"]: row["milliseconds"] for row in rows_of(name)} for d, name in files.items()}
    compared = [
        ("go", "roofline"),
        ("sinkhorn-v4", "go"),
        ("sinkhorn-v4", "transformers, DeepSeek-V4"),
        ("go, bfloat16", "go"),
        ("go, static", "go"),
        ("go, static, bfloat16", "go, static"),
    ]
    table = [_row(["layer, c = 384", "compared with", *(f"d = {d}" for d in times)]), _row(["---"] * (2 + len(times)))]
    for one, other in compared:
        table.append(_row([one, other, *(_ratio(own[one], own[other]) for own in times.values())]))
    return "\n".join(table)


def decode(rows: Rows) -> str:
    """Times of decoding one token or of reading a prompt, as multiples of the plain model's."""
    names = tuple(rows[0]["sizes"])
    table = [f"| decoding | {' | '.join(names)} | time / plain residual |", f"|---|{'---|' * len(names)}---|"]
    for row in rows:
        cells = (row["method"], *(row["sizes"][name] for name in names), _short(row["ratios"]["plain residual"]))
        table.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(table)


def step(rows: Rows) -> str:
    """Times and peak memory of a training step, as multiples of the plain model's, which comes first."""
    sizes = rows[0]["sizes"]
    model = f"{sizes['layers']} layers of c = {sizes['c']}, {sizes['batch']} x {sizes['tokens']} tokens"
    table = [f"| training step, {model} | time / plain residual | peak memory / plain residual |", "|---|---|---|"]
    for row in rows:
        memory = row["megabytes"] / rows[0]["megabytes"]
        table.append(f"| {row['method']} | {_short(row['ratios']['plain residual'])} | {_short(memory)} |")
    return "\n".join(table)


def overview() -> str:
    """The times that a reader asks for first, each beside what it is compared with."""
    maps = {row["method"]: row["milliseconds"] for row in rows_of("projection") if row["sizes"]["d"] == 4}
    layers = {row["method"]: row["milliseconds"] for row in rows_of("layer")}
    tokens = [row["ratios"]["plain residual"] for row in rows_of("decode") if row["method"] == "go"]  # the GPT's first
    rows = [
        ("map, `go`", "Sinkhorn in C++", maps["go"] / maps["sinkhorn"]),
        ("", "20 Sinkhorn iterations in torch", maps["go"] / maps["20 Sinkhorn iterations"]),
        ("", "`torch.linalg.solve`", maps["go"] / maps["linalg.solve"]),
        ("layer, `go`", "its roofline: three products, eight copies", layers["go"] / layers["roofline"]),
        ("", "a layer with Sinkhorn in C++", layers["go"] / layers["sinkhorn"]),
        ("", "transformers' layer of DeepSeek-V4", layers["go"] / layers["transformers, DeepSeek-V4"]),
    ]
    if (FOLDER / "step.json").exists():
        steps = {row["method"]: row["ratios"]["plain residual"] for row in rows_of("step")}
        memory = {row["method"]: row["megabytes"] for row in rows_of("step")}
        rows.append(("training step, 30M GPT with `go`", "the plain GPT (small models pay more)", steps["go"]))
        rows.append(("peak memory of that step", "the plain GPT", memory["go"] / memory["plain residual"]))
    rows.append(("decoding a token, 30M GPT with `go`", "the plain GPT", tokens[0]))
    head = ["| time, d = 4 | compared with | ratio |", "|---|---|---|"]
    return "\n".join(head + [f"| {what} | {other} | {_short(ratio)}× |" for what, other, ratio in rows])


def step_compiled(rows: Rows) -> str:
    """Times of a training step under torch.compile, as multiples of the compiled plain model's."""
    return step(rows).replace("training step", "compiled training step", 1)


def growth(rows: Rows) -> str:
    """Time of a multiply-add of each map over the number of streams; of go and the solve with s = 1 to 3."""
    cost = {}
    for row in rows:
        d, s = row["sizes"]["d"], row["sizes"]["s"]
        nanoseconds = 1e6 * row["milliseconds"] / row["sizes"]["matrices"]
        cost[row["method"], d, s] = nanoseconds / map_operations(row["method"], d, s)
    methods = [
        (method, s)
        for s in (1, 2, 3)
        for method in dict.fromkeys(method for method, d, size in cost if size == s)
        if method not in UNCOUNTED and "(" not in method and "," not in method  # nor other kernels and rotations
    ]
    head = ["map, ps per multiply-add", "count", *(f"d = {d}" for d in STREAMS)]
    table = [_row(head), _row(["---"] * len(head))]
    for method, s in methods:
        label = f"{method}, s = {s}" if method in BY_EXPRESSIVITY else method
        cells = [_short(1e3 * cost[method, d, s]) if (method, d, s) in cost else "" for d in STREAMS]
        table.append(_row([label, COUNTS.get(method, ENTRIES).formula, *cells]))
    return "\n".join(table)


def layer_growth(rows: Rows) -> str:
    """Time of a token over the number of streams, and that of a multiply-add."""
    head = ["layer, c = 128", "d", "thousand multiply-adds per token", "µs per token", "ps per multiply-add"]
    table = [_row(head), _row(["---"] * len(head))]
    for row in rows:
        d, c, method = row["sizes"]["d"], row["sizes"]["c"], row["method"]
        count = layer_operations(method, d, 2, mixings(d)[method].num_logits, c)
        microseconds = 1e3 * row["milliseconds"] / row["sizes"]["tokens"]
        table.append(_row([method, d, f"{count / 1e3:,.0f}", _short(microseconds), _short(1e6 * microseconds / count)]))
    return "\n".join(table)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


TABLES: dict[str, Callable[[Rows], str]] = {
    "projection": projection,
    "layer": layer,
    "step": step,
    "small_step": step,
    "step_compiled": step_compiled,
    "decode": decode,
    "growth": growth,
    "layer_growth": layer_growth,
}
"""Name of a file and of the places that show it -> its table."""
OVERVIEWS: dict[str, Callable[[], str]] = {"overview": overview, "layer_sizes": layer_sizes}
"""Tables from several files."""


def rows_of(name: str) -> Rows:
    """What `gomhc bench NAME` measured."""
    return json.loads((FOLDER / f"{name}.json").read_text())["rows"]


def table(name: str) -> str:
    """Return the table of this name."""
    return OVERVIEWS[name]() if name in OVERVIEWS else TABLES[name](rows_of(name))


def _ratio(time: float, reference: float) -> str:
    return _short(time / reference)


def _short(number: float) -> str:
    """Two digits behind the point, fewer for large numbers and more for small ones."""
    if number >= 10:
        return f"{number:,.0f}"
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


if __name__ == "__main__":
    fill("benchmark", table)
