"""Wall-clock time of the maps, forward and backward (the paper counts FLOPs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gomhc.birkhoff import PARAMETRIZATIONS
from gomhc.lab.bench import timing
from gomhc.lab.bench.projection import ITERATIONS, PRODUCT, SOLVE, Projection
from gomhc.lab.exhibits.exhibit import Exhibit, Table
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record


@dataclass(frozen=True, kw_only=True)
class MapTimes(Run):
    """All maps take turns in one run, d = 4, s = 2, and d = 8."""

    num_matrices: int
    rounds: int
    mixings: tuple[str, ...] = field(default_factory=lambda: tuple(PARAMETRIZATIONS))
    """Keys of the maps: a record is of those that were registered when it was made."""

    @property
    def alone(self) -> bool:
        return True

    @property
    def cost(self) -> float:
        return 40 * (0.01 + self.num_matrices * 5e-6) * self.rounds

    def execute(self) -> dict[str, Any]:
        benchmark = Projection(threads=torch.get_num_threads(), rounds=self.rounds, num_matrices=self.num_matrices)
        timings = timing.timings(list(timing.turns(benchmark.contenders(), self.rounds)), benchmark.references)
        rows = [
            {"method": row.method, **row.sizes, "milliseconds": row.milliseconds, "spread": row.spread}
            for row in timings
        ]
        return {"rows": rows, "threads": torch.get_num_threads()}


class TimesOfMaps(Experiment):
    """Time of the maps beside each other."""

    name = "map-times"
    title = "Wall-clock time of the maps"
    paper = (
        "go-mHC relies on batched linear solves and tensor contractions alone and needs no custom kernels, which mHC's "
        "twenty Sinkhorn iterations do (sec. 1, 2, 4.3). The paper counts FLOPs; here time is measured. It varies "
        "between machines: compare within the table."
    )
    order = 280
    claims = (
        Claim("no-kernels", "sec. 1", "no custom kernels", "go-mHC needs no kernel of its own to beat Sinkhorn's time.",
              "Time of 20 eager Sinkhorn iterations over that of go s = 2 by plain torch.linalg, d = 4, 4,096 "
              "matrices.", Rule(at_least=1)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [MapTimes(num_matrices=4096, rounds=3) if scale == "quick" else MapTimes(num_matrices=16384, rounds=20)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        times = {row["method"]: row["milliseconds"] for row in records[0].metrics["rows"] if row["d"] == 4}
        ratio = times[ITERATIONS] / times[SOLVE]
        ours, lite = times[ITERATIONS] / times["go"], times["go"] / times[PRODUCT]
        text = (
            f"{ratio:.3g} times; go as this library runs it: {ours:.3g} times, "
            f"and {lite:.3g} times as long as mHC-lite's product"
        )
        return {"no-kernels": Finding(ratio, text)}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """One row a method and size, beside the Sinkhorn iteration at that size."""
        metrics = records[0].metrics
        fastest = {
            row["d"]: min(other["milliseconds"] for other in metrics["rows"] if other["d"] == row["d"])
            for row in metrics["rows"]
        }
        rows = [
            (
                row["method"],
                row["d"],
                row["s"],
                f"{row['milliseconds']:.3g}",
                f"{row['spread']:.2g}",
                f"{row['milliseconds'] / fastest[row['d']]:.3g}",
            )
            for row in metrics["rows"]
        ]
        caption = (
            f"{metrics['rows'][0]['matrices']:,} matrices, forward and backward, float32, {metrics['threads']} "
            "threads: median over rounds in which all take turns. Names as in the registry; s applies to go."
        )
        header = ("method", "d", "s", "ms", "interquartile range, ms", "times the fastest")
        return [Table(header=header, rows=rows, caption=caption)]
