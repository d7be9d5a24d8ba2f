"""How far row and column sums are from one, over logit scales and depth (sec. 1, 2 and 3.3, app. B.7).

d = num_streams, s = expressivity, n = d s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gomhc.birkhoff import as_mixing
from gomhc.birkhoff.measures import composite, marginal_error
from gomhc.kernels.plain_map import cayley, skew
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import INK, line, look, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Headline, Rule
from gomhc.lab.results.record import Record, only, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGIT_SCALES = (1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 100.0, 1000.0)
EPSILON = 2.0**-23
"""Machine epsilon of float32."""


@dataclass(frozen=True, kw_only=True)
class MapErrors(Run):
    """Worst row or column sum off one, in float32, over logits of each scale."""

    method: str
    num_streams: int
    num_matrices: int = 2000
    seed: int = 0

    @property
    def cost(self) -> float:
        return 0.3

    def execute(self) -> dict[str, Any]:
        parametrization = as_mixing(self.method, self.num_streams)
        generator = torch.Generator().manual_seed(self.seed)
        logits = torch.randn(self.num_matrices, parametrization.num_logits, generator=generator)
        errors = [marginal_error(parametrization(scale * logits).double()).max().item() for scale in LOGIT_SCALES]
        return {"errors": errors, "size": getattr(parametrization, "size", self.num_streams)}


@dataclass(frozen=True, kw_only=True)
class Determinants(Run):
    """How far determinants of rotations are from one, and the smallest log det(I + X) of skew X; float64."""

    num_matrices: int = 500
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        worst, smallest = 0.0, torch.inf
        for n in range(2, 17):
            logits = torch.randn(self.num_matrices, n * (n - 1) // 2, generator=generator, dtype=torch.float64)
            for scale in LOGIT_SCALES:
                a = skew(scale * logits, n)
                worst = max(worst, (torch.linalg.det(cayley(a)) - 1).abs().max().item())
                identity = torch.eye(n, dtype=a.dtype)
                smallest = min(smallest, torch.linalg.slogdet(identity + a).logabsdet.min().item())
        return {"determinant_error": worst, "smallest_log_determinant": smallest}


@dataclass(frozen=True, kw_only=True)
class DepthErrors(Run):
    """Sums off one of products of matrices, by depth: the median over chains; float64, so that rounding is not seen."""

    method: str
    num_streams: int = 4
    num_chains: int = 500
    logit_scale: float = 3.0
    depths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        parametrization = as_mixing(self.method, self.num_streams)
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.num_chains, max(self.depths), parametrization.num_logits)
        matrices = parametrization(self.logit_scale * torch.randn(shape, generator=generator, dtype=torch.float64))
        errors = [marginal_error(composite(matrices[:, :depth])).median().item() for depth in self.depths]
        return {"errors": errors}


class Exactness(Experiment):
    """Sums of rows and columns over logit scales and depth."""

    name = "exactness"
    title = "Exactness over logit scales and depth"
    paper = (
        "go-mHC is doubly stochastic by construction, with no iterations and no approximation gap (sec. 1, 3.3). "
        "Twenty Sinkhorn iterations leave a gap that accumulates with depth (sec. 2, fig. 1)."
    )
    order = 10
    claims = (
        Claim("exact-go", "sec. 1", "no approximation gap", "go-mHC is doubly stochastic by construction.",
              "Worst row or column sum off one over n eps (float32), d = 2…16, s = 1, 2, 3, logits of scale 1e-3…1e3.",
              Rule(at_most=4)),
        Claim("exact-rivals", "sec. 3.3", "1", "mHC-lite and KromHC are as exact.", "The same for them, over d eps.",
              Rule(at_most=4)),
        Claim("sinkhorn-gap", "fig. 1, sec. 2", "not guaranteed", "Twenty Sinkhorn iterations can leave the polytope.",
              "Worst sum off one of 20 iterations, d = 4, logits of scale 3.", Rule(at_least=1e-3)),
        Claim("sinkhorn-depth", "sec. 2", "accumulates", "The gap of Sinkhorn accumulates with depth.",
              "Worst sum off one, median over 500 chains: products of 64 matrices over single ones, logits of scale "
              "3.", Rule(at_least=2)),
        Claim("det-one", "sec. 3.3", "det Q = +1", "The Cayley transform gives rotations.",
              "Worst |det Q - 1|, float64, n = 2…16.", Rule(at_most=1e-10)),
        Claim("det-bound", "app. B.7", "≥ 1", "det(I + X) is at least one for skew X, so the map has no poles.",
              "Smallest log det(I + X) over n = 2…16, scales 1e-3…1e3.", Rule(at_least=-1e-9)),
    )  # fmt: skip
    headlines = (
        Headline(
            rank=10,
            claim="exact-go",
            beside=("sinkhorn-gap",),
            number="{0:.1f} n·eps",
            holds="go-mHC is doubly stochastic to rounding at every scale of the logits: row and column sums are off "
            "by at most {0:.1f} n·eps (float32, n = ds). After twenty Sinkhorn iterations they are off by up to "
            "{1:.2g} (logits of scale 3).",
            fails="go-mHC is not doubly stochastic to rounding: a row or column sum is off by {0:.3g} n·eps "
            "(float32, n = ds). After twenty Sinkhorn iterations they are off by up to {1:.2g} (logits of scale 3).",
        ),
    )

    SHOWN = ("go-s1", "go-s2", "go-s3", "mhc-lite", "kromhc", "transportation", "mhc", "mhc-linear")

    def runs(self, scale: Scale) -> Sequence[Run]:
        go = [MapErrors(method=f"go-s{s}", num_streams=d) for s in (1, 2, 3) for d in (2, 3, 4, 8, 16)]
        lite = [MapErrors(method="mhc-lite", num_streams=d) for d in (2, 3, 4, 6)]
        krom = [MapErrors(method="kromhc", num_streams=d) for d in (2, 4, 8, 16)]
        others = [MapErrors(method=name, num_streams=4) for name in ("mhc", "mhc-linear", "transportation")]
        depth = [DepthErrors(method=name) for name in ("go-s2", "mhc", "mhc-lite", "kromhc")]
        return [*go, *lite, *krom, *others, *depth, Determinants()]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        maps = select(records, "MapErrors")

        def worst(*methods: str) -> float:
            mine = [record for record in maps if record.configuration["method"] in methods]
            return max(max(record.metrics["errors"]) / (record.metrics["size"] * EPSILON) for record in mine)

        go, rivals = worst("go-s1", "go-s2", "go-s3"), worst("mhc-lite", "kromhc")
        gap = only(maps, method="mhc").metrics["errors"][LOGIT_SCALES.index(3.0)]
        depth = only(records, "DepthErrors", method="mhc").metrics["errors"]
        determinants = only(records, "Determinants").metrics
        return {
            "exact-go": Finding(go, f"{go:.2g} n eps at worst"),
            "exact-rivals": Finding(rivals, f"{rivals:.2g} d eps at worst"),
            "sinkhorn-gap": Finding(gap, f"off by {gap:.2g} at logits of scale 3"),
            "sinkhorn-depth": Finding(
                depth[-1] / depth[0],
                f"off by {depth[0]:.2g} for one matrix, {depth[-1]:.2g} for 64: {depth[-1] / depth[0]:.1f}×",
            ),
            "det-one": Finding(determinants["determinant_error"], f"off by {determinants['determinant_error']:.1e}"),
            "det-bound": Finding(
                determinants["smallest_log_determinant"],
                f"smallest log det is {determinants['smallest_log_determinant']:.1e}",
            ),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Errors over scales (d = 4) and over depth, and the numbers."""
        rows = [
            (
                look(name).label,
                *(f"{error:.0e}" for error in only(records, "MapErrors", method=name, num_streams=4).metrics["errors"]),
            )
            for name in self.SHOWN
        ]
        header = ("d = 4", *(f"{scale:g}" for scale in LOGIT_SCALES))
        return [
            Plot(
                draw=lambda: self._draw(records),
                caption="Left: the worst row or column sum, distance from one, of 2,000 matrices in float32 over the "
                "scale of the logits. Right: that of products of matrices over depth, median of 500 chains, float64, "
                "logits of scale three.",
            ),
            Table(header=header, rows=rows, caption="Worst distance of a sum from one, by the scale of the logits."),
        ]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8, 3.6)
        scales, depth = figure.subplots(1, 2)
        for name in self.SHOWN:
            errors = only(records, "MapErrors", method=name, num_streams=4).metrics["errors"]
            scales.loglog(LOGIT_SCALES, [max(error, 1e-9) for error in errors], **line(name))
        for record in select(records, "DepthErrors"):
            depths, errors = record.configuration["depths"], record.metrics["errors"]
            depth.loglog(depths, [max(error, 1e-17) for error in errors], **line(record.configuration["method"]))
        scales.axhline(2**-23, color=INK, linewidth=0.8, linestyle=":")
        scales.set(xlabel="scale of the logits", ylabel="worst |sum - 1|", title="one matrix, float32 (dots: eps)")
        depth.set(xlabel="matrices in the product", title="products, float64")
        figure.legend(*scales.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure
