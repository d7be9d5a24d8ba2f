"""Every registered mixing beside each other: what its matrices keep, and how it learns the toy task.

d = num_streams
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gomhc.birkhoff import PARAMETRIZATIONS, as_mixing
from gomhc.lab.exhibits.exhibit import Cell, Exhibit, Plot, Table
from gomhc.lab.exhibits.style import INK, look, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGIT_SCALES = (0.1, 1.0, 10.0, 1000.0)
ROUNDING = 4 * 4 * 2.0**-23
"""Rounding error of a sum over four streams in float32."""


@dataclass(frozen=True, kw_only=True)
class KeptFacts(Run):
    """Signs, sums and singular values of a mixing's matrices in float32, the worst over scales of the logits."""

    method: str
    num_streams: int = 4
    num_matrices: int = 1000
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        mixing = as_mixing(self.method, self.num_streams)
        generator = torch.Generator().manual_seed(self.seed)
        logits = torch.randn(self.num_matrices, mixing.num_logits, generator=generator)
        matrices = torch.cat([mixing(scale * logits) for scale in LOGIT_SCALES]).double()
        values = torch.linalg.svdvals(matrices)
        return {
            "lowest": matrices.min().item(),
            "rows": (matrices.sum(-1) - 1).abs().max().item(),
            "columns": (matrices.sum(-2) - 1).abs().max().item(),
            "norm": values.max().item(),
            "smallest_value": values.min().item(),
            "num_logits": mixing.num_logits,
            "promise": str(mixing.promise),
        }


class Rivals(Experiment):
    """What each mixing keeps, and how low and how soon it gets on the toy task."""

    name = "rivals"
    title = "Every mixing beside each other"
    paper = (
        "Not in the paper. Other papers constrain the mix in other ways and promise other things: unit sums, a norm of "
        "one, one marginal, a bounded gain. Their promises are measured here. All learn the paper's toy task, whose "
        "targets are doubly stochastic, from starts near the identity."
    )
    order = 1000
    claims = (
        Claim("circulant-exact", "C-mHC", "exact", "Weights of d cyclic shifts are doubly stochastic.",
              "Worst row or column sum off one, d = 4, float32, logits of scale 0.1 to 1,000.",
              Rule(at_most=ROUNDING), source="C-mHC"),
        Claim("projection-exact", "mHC-proj", "to a tolerance", "The projection is doubly stochastic.",
              "The same.", Rule(at_most=ROUNDING), source="mHC-proj"),
        Claim("shc-sums", "sHC", "1", "Rows and columns of the spectral sphere sum to one.",
              "The same.", Rule(at_most=ROUNDING), source="sHC"),
        Claim("shc-norm", "sHC", "≤ 1", "The spectral norm on the spectral sphere is at most one.",
              "Largest singular value over the same matrices.", Rule(at_most=1 + ROUNDING), source="sHC"),
        Claim("orthogonal-isometry", "JPmHC, oHC", "1", "A rotation keeps the norm of every signal.",
              "Largest distance of a singular value from one, Cayley and quaternions.", Rule(at_most=ROUNDING),
              source="JPmHC"),
        Claim("rows-one-marginal", "osHC", "1", "Rows sum to one where rows alone are constrained.",
              "Worst row sum off one.", Rule(at_most=ROUNDING), source="osHC"),
        Claim("off-diagonal-gain", "ITO-HC", "bounded", "Bounded entries off the diagonal bound the gain.",
              "Largest spectral norm, with at most a half off the diagonal.", Rule(at_most=1.5 + ROUNDING),
              source="ITO-HC"),
        Claim("shc-expressive", "sHC", "no bottleneck", "Without signs, doubly stochastic targets are learned as well.",
              "Final loss of the spectral sphere over that of go s = 2.", Rule(at_most=1.02), source="sHC"),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        methods = [*PARAMETRIZATIONS, "ohc"]
        sizes: Sizes = {"num_targets": 4, "num_epochs": 1000} if scale == "quick" else {"num_epochs": 3000}
        return [
            *(KeptFacts(method=method) for method in methods),
            *(ToyRun(method=method, learning_rate=0.01, start="near-identity", **sizes) for method in methods),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        facts = {record.configuration["method"]: record.metrics for record in select(records, "KeptFacts")}
        toys = {record.configuration["method"]: record.metrics for record in select(records, "ToyRun")}
        findings = {}
        for claim, method in (("circulant-exact", "circulant"), ("projection-exact", "projection"),
                              ("shc-sums", "spectral-sphere")):  # fmt: skip
            if method in facts:
                error = max(facts[method]["rows"], facts[method]["columns"])
                findings[claim] = Finding(error, f"off by {error:.1e}")
        if "spectral-sphere" in facts:
            norm = facts["spectral-sphere"]["norm"]
            findings["shc-norm"] = Finding(
                norm, f"1 {norm - 1:+.1e}; lowest entry {facts['spectral-sphere']['lowest']:.2f}"
            )
        if {"orthogonal", "ohc"} <= facts.keys():
            both = [facts[method][name] for method in ("orthogonal", "ohc") for name in ("norm", "smallest_value")]
            error = max(abs(value - 1) for value in both)
            findings["orthogonal-isometry"] = Finding(error, f"off by {error:.1e}")
        if "rows" in facts:
            rows, columns = facts["rows"]["rows"], facts["rows"]["columns"]
            findings["rows-one-marginal"] = Finding(rows, f"rows off by {rows:.1e}, columns by up to {columns:.2g}")
        if "off-diagonal" in facts:
            norm = facts["off-diagonal"]["norm"]
            findings["off-diagonal-gain"] = Finding(norm, f"{norm:.3f} at most")
        if {"spectral-sphere", "go"} <= toys.keys():
            ratio = toys["spectral-sphere"]["final"] / toys["go"]["final"]
            findings["shc-expressive"] = Finding(ratio, f"{ratio:.3f} times the loss of go s = 2")
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Loss over epochs, the end of it, and the facts as a table."""
        caption = (
            "Left: loss of the toy task over epochs, mean over targets, Adam at learning rate 0.01. Right: the loss in "
            "the end, over the least that a matrix with unit sums can reach (dashes); blue: doubly stochastic mixings. "
            "Others may get below it, as they can fit the mean of the noise."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption), self._table(records)]

    def _table(self, records: Sequence[Record]) -> Table:
        toys = {record.configuration["method"]: record.metrics for record in select(records, "ToyRun")}
        rows: list[Sequence[Cell]] = []
        for record in select(records, "KeptFacts"):
            method, facts = record.configuration["method"], record.metrics
            toy = toys.get(method)
            rows.append(
                (
                    method,
                    facts["num_logits"],
                    facts["promise"],
                    f"{facts['lowest']:.2g}",
                    f"{facts['rows']:.0e}",
                    f"{facts['columns']:.0e}",
                    f"{facts['norm']:.3g}",
                    f"{facts['smallest_value']:.2g}",
                    toy["final"] / toy["lowest"] if toy else None,
                    toy["converged"] if toy else None,
                )
            )
        header = ("mixing", "logits", "promises", "lowest entry", "row sum off by", "column sum off by",
                  "largest singular value", "smallest", "final loss over the least", "epochs to converge")  # fmt: skip
        caption = (
            f"d = 4, float32, worst of {1000 * len(LOGIT_SCALES):,} matrices, logits of scale 0.1, 1, 10 and 1,000."
        )
        return Table(header=header, rows=rows, caption=caption)

    def _draw(self, records: Sequence[Record]) -> Figure:
        toys = sorted(select(records, "ToyRun"), key=lambda record: -record.metrics["final"])
        exact = {
            record.configuration["method"]
            for record in select(records, "KeptFacts")
            if record.metrics["promise"] in ("exact", "approximate")
        }
        figure = new_figure(8, 0.24 * len(toys) + 1.4)
        curves, bars = figure.subplots(1, 2)
        for place, record in enumerate(toys):
            method, metrics = record.configuration["method"], record.metrics
            color = "#0077BB" if method in exact else "#EE7733"
            epochs = [epoch + 1 for epoch in metrics["epochs"]]
            curves.loglog(epochs, metrics["loss"], color=color, linewidth=1, alpha=0.7)
            bars.plot(metrics["final"] / metrics["lowest"], place, "o", color=color)
            bars.hlines(place, 1, metrics["final"] / metrics["lowest"], color=color, linewidth=1)
        bars.set_yticks(range(len(toys)), [look(record.configuration["method"]).label for record in toys])
        bars.axvline(1, color=INK, linewidth=0.8, linestyle="--")
        bars.set(xscale="log", xlabel="final loss over the least with unit sums")
        curves.set(xlabel="epoch + 1", ylabel="loss")
        return figure
