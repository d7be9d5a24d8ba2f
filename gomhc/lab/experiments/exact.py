"""Are the matrices doubly stochastic, whatever the logits? (sec. 1, 2 and 3.3, app. B.7)

d = num_streams, s = expressivity, n = d s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff.measures import composite, marginal_error
from gomhc.kernels.plain_map import cayley, skew
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.methods import METHODS
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, only, select

LOGIT_SCALES = (1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 100.0, 1000.0)
EPSILON = 2.0**-23
"""Of float32."""


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
        parametrization = METHODS[self.method](num_streams=self.num_streams)
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
        parametrization = METHODS[self.method](num_streams=self.num_streams)
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
