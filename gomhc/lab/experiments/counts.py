"""Parameters and FLOPs of the methods (tables 1 and 2, fig. 5, app. B.6).

d = num_streams, s = expressivity, C = num_channels, p = logits
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gomhc.birkhoff import Average, Kronecker, Orthostochastic, Parametrization, as_mixing
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import line, look, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.flops import flops
from gomhc.lab.results.claim import TRUE, Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select
from gomhc.layers import HyperConnection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        methods = {d: as_mixing(self.method, d) for d in made}
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
    """The dimension of what a method reaches: the largest rank of its Jacobian at random logits."""

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
    """Exponent of the growth between two numbers of streams."""
    ratio = values[streams.index(high)] / values[streams.index(low)]
    return math.log(ratio) / math.log(high / low)


Counted = Mapping[str, dict[str, Any]]
"""Method -> what its run counted."""


class CountsAndFlops(Experiment):
    """Tables 1 and 2, fig. 5."""

    name = "counts"
    title = "Parameters and FLOPs (tables 1 and 2, fig. 5)"
    paper = (
        "go-mHC has ds(ds - 1)/2 free reals and grows as mHC does; mHC-lite grows as d! and is intractable beyond "
        "d = 8; KromHC is the cheapest (table 1, fig. 5). At d = 16 go-mHC costs two orders of magnitude more FLOPs "
        "than KromHC, and mHC-lite sixteen (sec. 4.3, table 2, app. B.6)."
    )
    order = 60
    claims = (
        Claim("table1", "table 1", "four formulas", "Learned parameters of one hyper-connection.",
              "Largest difference between the formula and the parameters of the layer, counted, d = 2, 4, 8.",
              Rule(0, 0)),
        Claim("fig1-parameters", "fig. 1", "d(d-1)/2", "go-mHC comes close to the polytope with d(d-1)/2 parameters.",
              "Dimension of what d(d-1)/2 parameters reach (rank of the Jacobian) over that of the polytope, d = 4.",
              Rule(at_least=1)),
        Claim("free-reals", "sec. 3.1", "ds(ds-1)/2", "go-mHC takes ds(ds-1)/2 free reals.",
              "Largest difference of the logits that the map takes, d = 2…16, s = 1, 2, 3.", Rule(0, 0)),
        Claim("eight-factorial", "sec. 1", "40,320", "mHC-lite needs 8! permutations for eight streams.",
              "Logits that it takes at d = 8.", Rule(40_320, 40_320)),
        Claim("fig5-s1", "fig. 5", "fewer", "go-mHC with s = 1 has fewer parameters than mHC at every d.",
              "Whether it has, d = 2…32, C = 384.", TRUE),
        Claim("fig5-scaling", "fig. 5", "same", "go-mHC's parameters grow with d as mHC's do, whatever s.",
              "Largest difference of the exponents between d = 16 and 32, s = 1, 2, 3.", Rule(at_most=0.15)),
        Claim("fig5-kromhc", "fig. 5", "O(d log d)", "KromHC's residual parameters grow as d log d.",
              "Residual part over C d log2 d: largest over smallest, d = 2…32.", Rule(1, 1.05)),
        Claim("kromhc-count", "sec. 4.2", "O(dC d)", "KromHC has the fewest parameters of all.",
              "Whether it has at d = 4…32.", TRUE),
        Claim("cubic", "abstract, sec. 1", "O(d³)", "go-mHC scales as d³, in parameters and in FLOPs.",
              "Largest |exponent - 3| between d = 16 and 32, s = 1, 2.", Rule(at_most=0.25)),
        Claim("flops-kromhc", "sec. 4.3", "2 orders",
              "At d = 16 go-mHC costs two orders of magnitude more than KromHC.",
              "log10 of the ratio by app. B.6, s = 2.", Rule(1.5, 2.5)),
        Claim("flops-lite", "sec. 4.3", "16 orders", "At d = 16 mHC-lite costs sixteen orders more than KromHC.",
              "log10 of the ratio by app. B.6.", Rule(15.5, 16.5)),
        Claim("flops-mhc", "sec. 4.3", "about equal", "At d = 16 go-mHC and mHC are of one order of magnitude.",
              "Largest |log10 of the ratio|, s = 1, 2.", Rule(at_most=1)),
        Claim("flops-average", "app. H.1", "O(s d³)", "Averaging s orthostochastic matrices costs s d³, not s³ d³.",
              "Exponent in s of the average's cost between s = 2 and 8.", Rule(0.9, 1.1)),
        Claim("go-kron-count", "sec. 4.2", "Σ s i (s i - 1)/2",
              "Kronecker factors can be go-mHC: free reals are the sum.",
              "Largest difference of the logits of such products, d = 4…64.", Rule(0, 0)),
    )  # fmt: skip

    COLUMNS = (2, 4, 8, 16, 32)

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [
            *(Counts(method=name) for name in PAPER_LOGITS),
            Dimension(expressivity=1),
            Dimension(expressivity=2),
            Combinations(),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        counts = {record.configuration["method"]: record.metrics for record in select(records, "Counts")}
        return {
            **self._table_1(counts),
            **self._fig5(counts),
            **self._dimensions(records),
            **self._flops(counts),
            **self._combinations(records),
        }

    def _table_1(self, counts: Counted) -> dict[str, Finding]:
        """Compare the paper's formulas to the layers and maps of the library."""
        layers = [
            abs(layer - table_1(name, d, 384))
            for name, count in counts.items()
            for d, layer in zip(count["made"], count["layer"], strict=True)
        ]
        logits = [
            abs(ours - paper)
            for name in ("go-s1", "go-s2", "go-s3")
            for ours, paper in zip(counts[name]["logits"], counts[name]["logits_paper"], strict=True)
        ]
        lite = dict(zip(counts["mhc-lite"]["made"], counts["mhc-lite"]["logits"], strict=True))
        return {
            "table1": Finding(max(layers), f"{len(layers)} layers counted, d = 2…32; largest difference {max(layers)}"),
            "free-reals": Finding(max(logits), f"largest difference {max(logits)}"),
            "eight-factorial": Finding(lite[8], f"{lite[8]:,}"),
        }

    def _fig5(self, counts: Counted) -> dict[str, Finding]:
        """Growth of the parameters with d."""
        parameters = {
            name: dict(zip(count["streams"], count["table_1"], strict=True)) for name, count in counts.items()
        }
        mhc, krom = parameters["mhc"], parameters["kromhc"]
        fewer = all(parameters["go-s1"][d] < mhc[d] for d in mhc)
        fewest = all(krom[d] <= min(of_method[d] for of_method in parameters.values()) for d in krom if d >= 4)
        exponents = {
            name: _exponent(counts[name]["streams"], counts[name]["table_1"])
            for name in ("mhc", "go-s1", "go-s2", "go-s3")
        }
        apart = max(abs(exponent - exponents["mhc"]) for exponent in exponents.values())
        listed = ", ".join(f"{name} {exponent:.2f}" for name, exponent in exponents.items())
        residual = [(krom[d] - 2 * d * d * 384 - 2 * d - 3) / (384 * d * math.log2(d)) for d in krom]
        spread = max(residual) / min(residual)
        return {
            "fig5-s1": Finding(fewer, "fewer at every d from 2 to 32"),
            "fig5-scaling": Finding(apart, f"{listed} (exponents)"),
            "fig5-kromhc": Finding(spread, f"ratio varies by {spread:.4f}"),
            "kromhc-count": Finding(fewest, "fewest at d = 4, 8, 16, 32" if fewest else "not the fewest"),
        }

    def _dimensions(self, records: Sequence[Record]) -> dict[str, Finding]:
        """Dimensions that d (d - 1) / 2 parameters reach."""
        one, two = (only(records, "Dimension", expressivity=s).metrics for s in (1, 2))
        text = (
            f"{one['logits']} parameters reach {one['rank']} of {one['polytope']} dimensions at d = 4; "
            f"s = 2 reaches {two['rank']} with {two['logits']}"
        )
        return {"fig1-parameters": Finding(one["rank"] / one["polytope"], text)}

    def _flops(self, counts: Counted) -> dict[str, Finding]:
        """Operations by the paper's formulas, at d = 16."""

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
        }

    def _combinations(self, records: Sequence[Record]) -> dict[str, Finding]:
        """Averages of go-mHC matrices, and Kronecker products of them."""
        combinations = only(records, "Combinations").metrics
        _, two, _, eight = combinations["average"]
        exponent = math.log(eight / two) / math.log(8 / 2)
        return {
            "flops-average": Finding(exponent, f"s to the {exponent:.2f}"),
            "go-kron-count": Finding(combinations["difference"], f"largest difference {combinations['difference']}"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Fig. 5, its twin for FLOPs, and both as tables."""
        counts = select(records, "Counts")
        return [
            Plot(
                draw=lambda: self._draw(counts),
                caption="Left: learned parameters of one hyper-connection of 384 channels by table 1, as fig. 5 draws "
                "them. Right: FLOPs of one projection by app. B.6. KromHC for powers of two.",
            ),
            self._table(
                counts, "table_1", "Parameters of one hyper-connection, C = 384 (table 1); the layer has exactly these."
            ),
            self._table(counts, "flops_paper", "FLOPs of one projection, C = 384 (app. B.6)."),
        ]

    def _draw(self, counts: Sequence[Record]) -> Figure:
        figure = new_figure(8, 4)
        parameters, flops = figure.subplots(1, 2)
        for record in counts:
            name = record.configuration["method"]
            for axes, what in ((parameters, "table_1"), (flops, "flops_paper")):
                axes.loglog(record.metrics["streams"], record.metrics[what], **line(name))
        for axes, label in ((parameters, "learned parameters"), (flops, "FLOPs")):
            axes.set(
                xlabel="streams d",
                ylabel=label,
                ylim=(1e3, 1e14),
                xticks=self.COLUMNS,
                xticklabels=map(str, self.COLUMNS),
            )
            axes.minorticks_off()
        figure.legend(*parameters.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure

    def _table(self, counts: Sequence[Record], what: str, caption: str) -> Table:
        rows = []
        for record in counts:
            values = dict(zip(record.metrics["streams"], record.metrics[what], strict=True))
            shown = [float(values[d]) if values[d] > 1e12 else round(values[d]) for d in self.COLUMNS]
            rows.append((look(record.configuration["method"]).label, *(f"{v:.1e}" if v > 1e12 else v for v in shown)))
        return Table(header=("method", *(f"d = {d}" for d in self.COLUMNS)), rows=rows, caption=caption)
