"""Write the table of mixings in README.md: equation, promise, free reals, time and paper.

    python docs/mixing_table.py

Promises are those of the registry, times those of benchmarks/projection.json; a test checks the free reals.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from places import ROOT, fill

import gomhc


class Entry(NamedTuple):
    """What a row says that is not in the registry."""

    equation: str
    free_reals: str
    """In d = number of streams, s = expressivity."""
    paper: str = ""


ENTRIES = {
    "go": Entry("‖Qᵢⱼ‖²/s, Q = (I − A)(I + A)⁻¹, Aᵀ = −A", "ds(ds − 1)/2", "go-mHC"),
    "go-unitary": Entry("the same with Q unitary", "(ds)²", "go-mHC, app. E"),
    "sinkhorn": Entry("exp(Z), rows and columns scaled 20 times", "d²", "mHC"),
    "sinkhorn-v4": Entry("softmax(Z) + ε, scaled likewise", "d²", "DeepSeek-V4"),
    "sinkhorn-linear": Entry("\\|Z\\|, scaled likewise", "d²", "go-mHC, app. B.9"),
    "permutations": Entry("Σ softmax(z)ₖ Pₖ over all d! permutations", "d!", "mHC-lite"),
    "kronecker": Entry("U₁ ⊗ U₂ ⊗ …", "sum over factors", "KromHC"),
    "average": Entry("Σ softmax(w)ᵢ Bᵢ, Bᵢ from another mixing", "k(p + 1)", "go-mHC, app. H"),
    "transportation": Entry("entries one by one, within what is left", "(d − 1)²"),
    "projection": Entry("argmin ‖B − Z‖ over the polytope", "d²", "mHC-proj"),
    "circulant": Entry("Σ softmax(z)ₖ Pᵏ over cyclic shifts", "d", "C-mHC"),
    "identity": Entry("I", "0", "Identity-HC"),
    "spectral-sphere": Entry("11ᵀ/d + U Q₁ tanh(z) Q₂ᵀ Uᵀ", "(d − 1)²", "sHC"),
    "orthogonal": Entry("Q with s = 1", "d(d − 1)/2", "JPmHC; oHC"),
    "rows": Entry("softmax of each row", "d²", "osHC"),
    "off-diagonal": Entry("I + b/(d − 1) tanh(Z) off the diagonal", "d(d − 1)", "ITO-HC"),
    "unconstrained": Entry("Z", "d²", "HC"),
}
"""Key of each mixing of the package -> the rest of its row."""


def table(name: str = "table") -> str:
    """Return the table; `name` is that of the place, and there is one."""
    measured = times_relative_to_go("projection")
    rows = []
    for key, entry in ENTRIES.items():
        promise = gomhc.PARAMETRIZATIONS[key](num_streams=4).promise
        time = short(measured[key]) if key in measured else ""
        rows.append(f"| `{key}` | {entry.equation} | {promise} | {entry.free_reals} | {time} | {entry.paper} |")
    head = ["| key | matrix | promise | free reals | time | paper |", "|---|---|---|---|---|---|"]
    return "\n".join(head + rows)


def times_relative_to_go(benchmark: str) -> dict[str, float]:
    """Times in benchmarks/NAME.json at d = 4, as multiples of go's."""
    rows = rows_of(benchmark)
    milliseconds = {row["method"]: row["milliseconds"] for row in rows if row["sizes"].get("d", 4) == 4}
    return {method: time / milliseconds["go"] for method, time in milliseconds.items()}


def rows_of(benchmark: str) -> list[dict[str, Any]]:
    """Rows of benchmarks/NAME.json, which `gomhc bench` wrote."""
    return json.loads((ROOT / "benchmarks" / f"{benchmark}.json").read_text(encoding="utf-8"))["rows"]


def short(number: float) -> str:
    """Return the number with two digits, or whole if it is large."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


if __name__ == "__main__":
    fill("mixings", table)
