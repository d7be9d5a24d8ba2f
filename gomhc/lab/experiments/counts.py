"""What do the methods cost in parameters and FLOPs? (tables 1 and 2, fig. 5, app. B.6)

d = num_streams, s = expressivity, C = num_channels, p = logits
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff import Average, Kronecker, Orthostochastic, Parametrization
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.flops import flops
from gomhc.lab.experiments.methods import METHODS
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, only, select
from gomhc.layers import HyperConnection

STREAMS = tuple(range(2, 33))
LARGEST_LITE = 8
"""The most streams for which d! permutations are made; beyond, the paper's formulas alone are used."""

PAPER_LOGITS: dict[str, Callable[[int], int]] = {
    "mhc": lambda d: d**2,
    "go-s1": lambda d: d * (d - 1) // 2,
    "go-s2": lambda d: 2 * d * (2 * d - 1) // 2,
    "go-s3": lambda d: 3 * d * (3 * d - 1) // 2,
    "mhc-lite": math.factorial,
    "kromhc": lambda d: 2 * round(math.log2(d)),
}
"""Table 1, written out: the number that (dC + 1) multiplies; KromHC with factors of two."""

PAPER_FLOPS: dict[str, Callable[[int], float]] = {
    "mhc": lambda d: 4 * 20 * d**2,
    "go-s1": lambda d: 8 / 3 * d**3 + 4 * d**2,
    "go-s2": lambda d: 8 / 3 * (2 * d) ** 3 + 4 * (2 * d) ** 2,
    "go-s3": lambda d: 8 / 3 * (3 * d) ** 3 + 4 * (3 * d) ** 2,
    "mhc-lite": lambda d: (3 + 2 * d**2) * math.factorial(d),
    "kromhc": lambda d: math.log2(d) * (3 * 2 + 2 * 4 * 2) + (4 * d**2 - 16) / 3,
}
"""App. B.6 for one channel."""


def table_1(method: str, d: int, c: int) -> int:
    """Parameters of one hyper-connection by the paper's table 1."""
    return (d * c + 1) * PAPER_LOGITS[method](d) + 2 * d * d * c + 2 * d + 3


def is_possible(method: str, d: int) -> bool:
    """Whether the paper counts it: KromHC for powers of two."""
    return method != "kromhc" or d & (d - 1) == 0


@dataclass(frozen=True, kw_only=True)
class Counts(Run):
    """Parameters and FLOPs of a method over d: by the paper's formulas, and as this library has them."""

    method: str
    num_channels: int = 384

    def execute(self) -> dict[str, Any]:
        streams = [d for d in STREAMS if is_possible(self.method, d)]
        made = [d for d in streams if self.method != "mhc-lite" or d <= LARGEST_LITE]
        methods = {d: METHODS[self.method](num_streams=d) for d in made}
        return {
            "streams": streams,
            "table_1": [table_1(self.method, d, self.num_channels) for d in streams],
            "flops_paper": [self.num_channels * PAPER_FLOPS[self.method](d) for d in streams],
            "made": made,
            "logits": [methods[d].num_logits for d in made],
            "logits_paper": [PAPER_LOGITS[self.method](d) for d in made],
            "layer": [self._layer(methods[d]) for d in made],
            "flops": [flops(methods[d], self.num_channels) for d in made],
        }

    def _layer(self, parametrization: Parametrization) -> int:
        """Parameters of the layer itself, counted; on the meta device, which holds none."""
        with torch.device("meta"):
            layer = HyperConnection(None, self.num_channels, parametrization)
        return sum(parameter.numel() for parameter in layer.parameters())


@dataclass(frozen=True, kw_only=True)
class Dimension(Run):
    """Of how many dimensions is what a method reaches? The largest rank of its Jacobian at random logits."""

    expressivity: int
    num_streams: int = 4
    num_points: int = 20
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        go = Orthostochastic(num_streams=self.num_streams, expressivity=self.expressivity)
        generator = torch.Generator().manual_seed(self.seed)
        logits = torch.randn(self.num_points, go.num_logits, generator=generator, dtype=torch.float64)
        jacobians = [torch.autograd.functional.jacobian(go, point).flatten(0, 1) for point in logits]
        ranks = [int(torch.linalg.matrix_rank(jacobian, rtol=1e-9)) for jacobian in jacobians]
        return {"rank": max(ranks), "polytope": (self.num_streams - 1) ** 2, "logits": go.num_logits}


@dataclass(frozen=True, kw_only=True)
class Combinations(Run):
    """Free reals of Kronecker products of go-mHC, beside the paper's sum; FLOPs of averages over s."""

    def execute(self) -> dict[str, Any]:
        differences = []
        for s in (1, 2, 3):
            for factors in ((2, 2), (4, 4), (3, 3), (4, 2), (8, 8), (4, 4, 4)):
                parts = tuple(Orthostochastic(num_streams=i, expressivity=s) for i in factors)
                expected = sum(s * i * (s * i - 1) // 2 for i in factors)
                differences.append(Kronecker(num_streams=math.prod(factors), factors=parts).num_logits - expected)
        cost = [flops(Average(num_streams=16, num_terms=s), 1) for s in (1, 2, 4, 8)]
        blocks = [flops(Orthostochastic(num_streams=16, expressivity=s), 1) for s in (1, 2, 4, 8)]
        return {"difference": max(map(abs, differences)), "average": cost, "blocks": blocks}


def _exponent(streams: list[int], values: list[float], low: int = 16, high: int = 32) -> float:
    """Of growth between two numbers of streams."""
    ratio = values[streams.index(high)] / values[streams.index(low)]
    return math.log(ratio) / math.log(high / low)


class CountsAndFlops(Experiment):
    """Tables 1 and 2, fig. 5."""

    name = "counts"
    title = "Parameters and FLOPs (tables 1 and 2, fig. 5)"
    paper = (
        "go-mHC has ds(ds - 1)/2 free reals and grows as mHC does; mHC-lite grows as d! and is intractable beyond "
        "d = 8; KromHC is the cheapest (table 1, fig. 5). At d = 16 go-mHC costs two orders of magnitude more FLOPs "
        "than KromHC, and mHC-lite sixteen (sec. 4.3, table 2, app. B.6)."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [
            *(Counts(method=name) for name in PAPER_LOGITS),
            Dimension(expressivity=1),
            Dimension(expressivity=2),
            Combinations(),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        counts = {record.configuration["method"]: record.metrics for record in select(records, "Counts")}
        return self._parameters(counts, records) | self._flops(counts, records)

    def _parameters(self, counts: dict[str, Any], records: Sequence[Record]) -> dict[str, Finding]:
        def parameters(method: str) -> dict[int, int]:
            return dict(zip(counts[method]["streams"], counts[method]["table_1"], strict=True))

        layers = {
            (name, d): layer - parameters(name)[d]
            for name, found in counts.items()
            for d, layer in zip(found["made"], found["layer"], strict=True)
        }
        reals = max(
            abs(ours - paper)
            for name in ("go-s1", "go-s2", "go-s3")
            for ours, paper in zip(counts[name]["logits"], counts[name]["logits_paper"], strict=True)
        )
        mhc, go_1, krom = parameters("mhc"), parameters("go-s1"), parameters("kromhc")
        exponents = {
            name: _exponent(counts[name]["streams"], counts[name]["table_1"])
            for name in ("mhc", "go-s1", "go-s2", "go-s3")
        }
        apart = max(abs(exponents[name] - exponents["mhc"]) for name in exponents)
        residual = [(krom[d] - 2 * d * d * 384 - 2 * d - 3) / (384 * d * math.log2(d)) for d in krom]
        fewest = all(krom[d] <= min(parameters(name)[d] for name in counts) for d in krom if d >= 4)
        small = only(records, "Dimension", expressivity=1).metrics
        larger = only(records, "Dimension", expressivity=2).metrics
        lite_8 = counts["mhc-lite"]["logits"][counts["mhc-lite"]["made"].index(8)]
        most = max(abs(value) for value in layers.values())
        return {
            "table1": Finding(most, f"{len(layers)} layers counted, d = 2…32; largest difference {most}"),
            "fig1-parameters": Finding(
                small["rank"] / small["polytope"],
                f"{small['logits']} parameters reach {small['rank']} of {small['polytope']} dimensions at d = 4; "
                f"s = 2 reaches {larger['rank']} with {larger['logits']}",
            ),
            "free-reals": Finding(reals, f"largest difference {reals}"),
            "eight-factorial": Finding(lite_8, f"{lite_8:,}"),
            "fig5-s1": Finding(all(go_1[d] < mhc[d] for d in mhc), "fewer at every d from 2 to 32"),
            "fig5-scaling": Finding(
                apart, ", ".join(f"{name} {exponent:.2f}" for name, exponent in exponents.items()) + " (exponents)"
            ),
            "fig5-kromhc": Finding(
                max(residual) / min(residual), f"ratio varies by {max(residual) / min(residual):.4f}"
            ),
            "kromhc-count": Finding(fewest, "fewest at d = 4, 8, 16, 32" if fewest else "not the fewest"),
        }

    def _flops(self, counts: dict[str, Any], records: Sequence[Record]) -> dict[str, Finding]:
        def paper_flops(method: str, d: int = 16) -> float:
            return counts[method]["flops_paper"][counts[method]["streams"].index(d)]

        exponents = [
            _exponent(counts[name]["streams"], counts[name][what])
            for name in ("go-s1", "go-s2")
            for what in ("table_1", "flops_paper")
        ]
        cubic = max(abs(exponent - 3) for exponent in exponents)
        over_krom = {
            name: math.log10(paper_flops(name) / paper_flops("kromhc")) for name in ("go-s1", "go-s2", "mhc-lite")
        }
        over_mhc = {name: math.log10(paper_flops(name) / paper_flops("mhc")) for name in ("go-s1", "go-s2")}
        combinations = only(records, "Combinations").metrics
        exponent = math.log(combinations["average"][3] / combinations["average"][1]) / math.log(4)
        return {
            "cubic": Finding(cubic, f"exponents {min(exponents):.2f} to {max(exponents):.2f}"),
            "flops-kromhc": Finding(
                over_krom["go-s2"], f"{over_krom['go-s2']:.1f} (s = 2), {over_krom['go-s1']:.1f} (s = 1)"
            ),
            "flops-lite": Finding(
                over_krom["mhc-lite"],
                f"{over_krom['mhc-lite']:.1f} orders more than KromHC; "
                f"its own count for a channel is of order {math.log10(paper_flops('mhc-lite') / 384):.1f}",
            ),
            "flops-mhc": Finding(
                max(map(abs, over_mhc.values())),
                ", ".join(f"{10**order:.2g} times mHC ({name})" for name, order in over_mhc.items()),
            ),
            "flops-average": Finding(exponent, f"s to the {exponent:.2f}"),
            "go-kron-count": Finding(combinations["difference"], f"largest difference {combinations['difference']}"),
        }
