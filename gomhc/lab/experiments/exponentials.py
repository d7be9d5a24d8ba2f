"""Whether exponentials slow training down: Sinkhorn with and without them, go-mHC with a softmax (app. B.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from gomhc.birkhoff import Orthostochastic, Parametrization
from gomhc.lab.exhibits.curve_plots import curve_plot, curve_table
from gomhc.lab.exhibits.exhibit import Exhibit
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class SoftmaxOrthostochastic(Orthostochastic):
    """Go-mHC with a softmax over the rows of Z that it does not need (app. B.9)."""

    key: ClassVar[str] = "go-softmax"
    layout: Literal["triangle", "square"] = "square"

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        return super().matrix(logits.unflatten(-1, (self.size, self.size)).softmax(-1).flatten(-2))


@dataclass(frozen=True, kw_only=True)
class SoftmaxRun(ToyRun):
    """Training of go-mHC with that softmax, which no registry has: it is here to be slow."""

    method: str = SoftmaxOrthostochastic.key

    @property
    def mixing(self) -> Parametrization:
        return SoftmaxOrthostochastic(num_streams=self.num_streams)


class Exponentials(Experiment):
    """Training curves with and without exponentials."""

    name = "sinkhorn"
    title = "Sinkhorn, Sinkhorn without the logarithm, and go-mHC with a softmax"
    paper = (
        "App. B.9: Sinkhorn-Knopp of absolute values converges sooner than in the logarithm, around when go-mHC does; "
        "a redundant softmax slows go-mHC down: softmax chokes gradients."
    )
    order = 180
    claims = (
        Claim("sinkhorn-linear", "app. B.9", "faster", "Sinkhorn without the logarithm converges sooner.",
              "Epochs to converge: Sinkhorn over its linear form.", Rule(at_least=1.5)),
        Claim("sinkhorn-as-go", "app. B.9", "around the same", "Linear Sinkhorn converges about when go does.",
              "Epochs to converge: linear Sinkhorn over go s = 2.", Rule(0.5, 2)),
        Claim("softmax-chokes", "app. B.9", "slower", "A redundant softmax slows go down.",
              "Epochs to converge: go with softmax over go s = 2.", Rule(at_least=1.5)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 16, "num_epochs": 3000} if scale == "quick" else {"num_epochs": 10_000}
        methods = ("go-square-s2", "mhc", "mhc-linear", "mhc-lite")
        return [*(ToyRun(method=method, **sizes) for method in methods), SoftmaxRun(**sizes)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        pairs = {
            "sinkhorn-linear": ("mhc", "mhc-linear"),
            "sinkhorn-as-go": ("mhc-linear", "go-square-s2"),
            "softmax-chokes": ("go-softmax", "go-square-s2"),
        }
        for claim, (over, under) in pairs.items():
            above, below = (metric(records, "converged", method=method) for method in (over, under))
            if above is not None and below:
                findings[claim] = Finding(above / below, f"{over} {above:g} epochs, {under} {below:g}")
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """One panel."""
        caption = (
            "Loss over epochs, d = 4: Sinkhorn-Knopp in the logarithm and of absolute values, and go-mHC with a "
            "softmax it does not need."
        )
        return [curve_plot(records, [("d = 4", {})], caption), curve_table(records, "The curves in numbers.")]
