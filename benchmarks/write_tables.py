"""Write the tables of times in README.md from the files that `gomhc bench` wrote to this folder.

    gomhc bench projection --json benchmarks/projection.json    # and so for layer, step and decode
    python benchmarks/write_tables.py

Each table stands between `<!-- benchmark: NAME -->` and `<!-- end of benchmark -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
README = FOLDER.parent / "README.md"
PLACE = re.compile(r"(<!-- benchmark: (\w+) -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)

Rows = list[dict[str, Any]]


def projection(rows: Rows) -> str:
    """Times of the maps, as multiples of go's at the same number of streams."""
    times = {(row["method"], row["sizes"]["d"]): row["milliseconds"] for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    table = ["| map, forward and backward, 16,384 matrices | d = 4 | d = 8 |", "|---|---|---|"]
    for method in methods:
        cells = [_ratio(times[method, d], times["go", d]) if (method, d) in times else "" for d in (4, 8)]
        table.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(table)


def layer(rows: Rows) -> str:
    """Times of a layer, as multiples of go's and of the roofline."""
    times = {row["method"]: row["milliseconds"] for row in rows}
    table = ["| layer, forward and backward, 4,096 tokens, d = 4, c = 384 | / go | / roofline |", "|---|---|---|"]
    for method, time in times.items():
        table.append(f"| {method} | {_ratio(time, times['go'])} | {_ratio(time, times['roofline'])} |")
    return "\n".join(table)


def decode(rows: Rows) -> str:
    """Times of one token more, as multiples of the plain model's."""
    table = ["| one token more | layers | c | / plain residual |", "|---|---|---|---|"]
    for row in rows:
        cells = (row["method"], row["sizes"]["layers"], row["sizes"]["c"], _short(row["ratios"]["plain residual"]))
        table.append("| {} | {} | {} | {} |".format(*cells))
    return "\n".join(table)


def step(rows: Rows) -> str:
    """Times of a training step, as multiples of the plain model's."""
    table = ["| training step of the 30M GPT, 4 x 256 tokens | / plain residual |", "|---|---|"]
    table += [f"| {row['method']} | {_short(row['ratios']['plain residual'])} |" for row in rows]
    return "\n".join(table)


TABLES: dict[str, Callable[[Rows], str]] = {"projection": projection, "layer": layer, "step": step, "decode": decode}


def with_tables(text: str) -> str:
    """The text with every table written anew."""

    def table(place: re.Match[str]) -> str:
        record = json.loads((FOLDER / f"{place[2]}.json").read_text())
        return f"{place[1]}{TABLES[place[2]](record['rows'])}\n{place[3]}"

    return PLACE.sub(table, text)


def _ratio(time: float, reference: float) -> str:
    return _short(time / reference)


def _short(number: float) -> str:
    """Two digits behind the point, fewer for large numbers and more for small ones."""
    if number >= 10:
        return f"{number:,.0f}"
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
