"""Sizes of the language models (app. G.1, G.4).

d = num_streams, s = expressivity, C = 384 channels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff import Orthostochastic, Parametrization, as_mixing
from gomhc.lab.exhibits.exhibit import Exhibit, Table
from gomhc.lab.exhibits.style import look
from gomhc.lab.experiments.counts import table_1
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import TRUE, Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select
from gomhc.models import GPT, GPTConfig

PRINTED = {
    ("mhc-lite", 4): 0.60,
    ("kromhc", 4): 0.23,
    ("go-s1", 4): 0.46,
    ("go-s2", 4): 1.34,
    ("kromhc", 8): 0.84,
    ("go-s1", 8): 2.98,
    ("go-s2", 8): 10.06,
    ("mhc-lite", 8): 1487.46,
}
"""(method, d) -> overhead in millions, as the paper prints it."""
CONNECTIONS, CHANNELS = 12, 384


@dataclass(frozen=True, kw_only=True)
class ModelSize(Run):
    """Parameters of the 30M model, counted on the meta device; `method` is empty for the plain residual network.

    go-mHC has n² logits here, as the paper's code (`layout="square"`), and, for comparison, n (n - 1) / 2.
    """

    method: str = ""
    num_streams: int = 1

    def execute(self) -> dict[str, Any]:
        if not self.method:
            plain = _model(None)
            return {"total": _size(plain), "embedding": plain.tokens.weight.numel()}
        triangle = as_mixing(self.method, self.num_streams)
        square = triangle
        if isinstance(triangle, Orthostochastic):
            square = Orthostochastic(num_streams=self.num_streams, expressivity=triangle.expressivity, layout="square")
        return {"total": _size(_model(square)), "total_triangle": _size(_model(triangle))}


def _model(mixing: Parametrization | None) -> GPT:
    with torch.device("meta"):
        return GPT(GPTConfig(mixing=mixing))


def _size(model: GPT) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class Parameters(Experiment):
    """The table of app. G.4."""

    name = "parameters"
    title = "Parameters of the 30M language model (app. G.4)"
    paper = (
        "The residual baseline has 30.14 M parameters, 20 M of them the embedding. mHC-lite at d = 8 adds 1.49 "
        "billion; go-mHC lies between mHC-lite and KromHC, even for tiny d (app. G.1, G.4)."
    )
    order = 240
    claims = (
        Claim("lm-30m", "app. G.4", "30.14 M", "The plain language model's size.", "Parameters of the GPT, in M.",
              Rule(30.14, 30.15)),
        Claim("lm-embedding", "app. G.1", "20 M of 30 M", "The embedding is about two thirds of the language model.",
              "Its share.", Rule(0.6, 0.7)),
        Claim("lm-overheads", "app. G.4", "0.23 … 1487.46 M", "The overheads of the eight models.",
              "Largest |printed - counted| in M: layers with n² logits for go, and a gain of d C for each norm, as "
              "the paper has.", Rule(at_most=0.0101)),
        Claim("lm-overheads-table1", "app. G.4, table 1", "ds(ds-1)/2",
              "The overheads of the eight models follow from table 1.",
              "Largest relative difference between printed and twelve times table 1.", Rule(at_most=0.05)),
        Claim("lm-between", "app. G.4", "between",
              "go-mHC's overhead lies between KromHC's and mHC-lite's, even for tiny d.",
              "Whether it does at d = 4 and 8, s = 1, 2, in the paper's own table.", TRUE),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        return [ModelSize(), *(ModelSize(method=method, num_streams=d) for method, d in PRINTED)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        plain = only(records, method="").metrics
        overheads = self.overheads(records)
        gained = {
            key: overhead["square"] + CONNECTIONS * key[1] * CHANNELS / 1e6 for key, overhead in overheads.items()
        }
        apart = max(abs(gained[key] - printed) for key, printed in PRINTED.items())
        by_table = {(name, d): CONNECTIONS * table_1(name, d, CHANNELS) / 1e6 for name, d in PRINTED}
        relative = {key: abs(by_table[key] - printed) / printed for key, printed in PRINTED.items()}
        worst = max(relative, key=lambda key: relative[key])
        outside = [
            f"{name} at d = {d}: {PRINTED[name, d]} M"
            for name in ("go-s1", "go-s2")
            for d in (4, 8)
            if not PRINTED["kromhc", d] <= PRINTED[name, d] <= PRINTED["mhc-lite", d]
        ]
        between = "; ".join(outside) + f", mHC-lite {PRINTED['mhc-lite', 4]} M" if outside else "between, each time"
        return {
            "lm-30m": Finding(plain["total"] / 1e6, f"{plain['total']:,}"),
            "lm-embedding": Finding(
                plain["embedding"] / plain["total"],
                f"{plain['embedding']:,}: {plain['embedding'] / plain['total']:.0%}",
            ),
            "lm-overheads": Finding(
                apart, f"eight models; largest difference {apart:.4f} M (the paper cuts to two places)"
            ),
            "lm-overheads-table1": Finding(
                relative[worst],
                f"{worst[0]} at d = {worst[1]}: {by_table[worst]:.2f} M by table 1, {PRINTED[worst]} M printed",
            ),
            "lm-between": Finding(not outside, between),
        }

    @staticmethod
    def overheads(records: Sequence[Record]) -> dict[tuple[str, int], dict[str, float]]:
        """(method, d) -> overhead in millions, with n² and with n (n - 1) / 2 logits."""
        plain = only(records, method="").metrics["total"]
        return {
            (record.configuration["method"], record.configuration["num_streams"]): {
                "square": (record.metrics["total"] - plain) / 1e6,
                "triangle": (record.metrics["total_triangle"] - plain) / 1e6,
            }
            for record in select(records)
            if record.configuration["method"]
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Printed overheads beside counted ones."""
        overheads = Parameters.overheads(records)
        rows = [
            (
                look(method).label,
                d,
                f"{printed:.2f}",
                f"{overheads[method, d]['square'] + CONNECTIONS * d * CHANNELS / 1e6:.3f}",
                f"{overheads[method, d]['square']:.3f}",
                f"{overheads[method, d]['triangle']:.3f}",
            )
            for (method, d), printed in PRINTED.items()
        ]
        header = ("method", "d", "printed", "counted, with the norm's gain", "counted", "with n(n - 1)/2 logits")
        caption = (
            "Overhead in millions over the plain network. The paper's code has n² logits for go-mHC and a learned gain "
            "of d C in the norm of each of the twelve connections; table 1 and this library have no such gain."
        )
        return [Table(header=header, rows=rows, caption=caption)]
