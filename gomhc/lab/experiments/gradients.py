"""Gradients of the map, and their size behind many layers (app. B.7, B.8).

d = num_streams, s = expressivity, n = d s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gomhc.birkhoff import Orthostochastic, as_mixing
from gomhc.kernels.plain_map import blockwise_squared_norm
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, only, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHAIN = 64


@dataclass(frozen=True, kw_only=True)
class Formula(Run):
    """The closed form of app. B.7 beside autograd through the solve, in float64; and the Jacobian at zero logits."""

    num_streams: int = 4
    expressivity: int = 2
    num_matrices: int = 200
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        d, s, n = self.num_streams, self.expressivity, self.num_streams * self.expressivity
        generator = torch.Generator().manual_seed(self.seed)
        z = torch.randn(self.num_matrices, n, n, generator=generator, dtype=torch.float64)
        x = (z - z.mT).requires_grad_()
        cotangent = torch.randn(self.num_matrices, d, d, generator=generator, dtype=torch.float64)
        identity = torch.eye(n, dtype=torch.float64)
        rotation = torch.linalg.solve(identity + x, identity - x, left=False)
        (by_autograd,) = torch.autograd.grad(blockwise_squared_norm(rotation, d), x, cotangent)
        inverse = torch.linalg.inv(identity + x.detach()).mT
        spread = cotangent.repeat_interleave(s, -1).repeat_interleave(s, -2)
        derived = -2 * inverse @ (2 / s * spread * rotation.detach()) @ inverse
        difference = torch.linalg.matrix_norm(derived - by_autograd) / torch.linalg.matrix_norm(by_autograd)
        go = Orthostochastic(num_streams=d, expressivity=s)
        at_zero = torch.autograd.functional.jacobian(go, torch.zeros(go.num_logits, dtype=torch.float64))
        return {"difference": difference.max().item(), "jacobian_at_zero": at_zero.norm().item()}


@dataclass(frozen=True, kw_only=True)
class Barycenter(Run):
    """How near the barycenter a search over rotations gets: the best of many starts."""

    num_streams: int
    expressivity: int

    @property
    def cost(self) -> float:
        return 2.0

    def execute(self) -> dict[str, Any]:
        d = self.num_streams
        go = Orthostochastic(num_streams=d, expressivity=self.expressivity)
        return {"distance": go.fit(torch.full((d, d), 1 / d, dtype=torch.float64)).distance.item()}


@dataclass(frozen=True, kw_only=True)
class Chain(Run):
    """Norm of (H^T)^(m - 1) delta over that of delta, m = 2…64, of one matrix H repeated; and over rho^(m - 1).

    Logits are standard normal; of HC they are the identity and a third of that.
    """

    method: str
    num_streams: int = 4
    num_matrices: int = 500
    seed: int = 0

    def execute(self) -> dict[str, Any]:
        d, generator = self.num_streams, torch.Generator().manual_seed(self.seed)
        parametrization = as_mixing(self.method, d)
        logits = torch.randn(self.num_matrices, parametrization.num_logits, generator=generator, dtype=torch.float64)
        if self.method == "hc":
            logits = torch.eye(d, dtype=logits.dtype).flatten() + logits / 3
        matrix = parametrization(logits)
        radius = torch.linalg.eigvals(matrix).abs().amax(-1)
        delta = torch.randn(self.num_matrices, d, 1, generator=generator, dtype=torch.float64)
        error, growth, beside_radius = delta, [], []
        for depth in range(1, CHAIN):
            error = matrix.mT @ error
            ratio = error.squeeze(-1).norm(dim=-1) / delta.squeeze(-1).norm(dim=-1)
            growth.append({"median": ratio.median().item(), "largest": ratio.max().item()})
            beside_radius.append((ratio / radius**depth).max().item())
        return {"growth": growth, "beside_radius": beside_radius}


class Gradients(Experiment):
    """The gradient's formula, where it vanishes, and what a deep chain does to it."""

    name = "gradients"
    title = "Gradients of the map and of deep chains"
    paper = (
        "The map is smooth, its gradient has a closed form, its Jacobian does not vanish, and its reachable set "
        "contains the barycenter (app. B.7). The spectral radius bounds the gradient of a deep linear chain (app. B.8)."
    )
    exact = ("go-s1", "go-s2", "mhc-lite", "kromhc")
    order = 170
    claims = (
        Claim("gradient-formula", "app. B.7", "-2 (I+X)⁻ᵀ G (I+X)⁻ᵀ", "The gradient has the closed form that is given.",
              "Largest relative difference from autograd through the solve, float64.", Rule(at_most=1e-10)),
        Claim("jacobian", "sec. 3.3, app. B.7", "non-vanishing", "The Jacobian of the map does not vanish.",
              "Norm of the Jacobian at zero logits, where the matrix is the identity.", Rule(at_least=1e-6)),
        Claim("barycenter", "app. B.7", "in the closure",
              "The reachable set contains the barycenter J/d, for any d and s.",
              "Worst ||B - J/d||_F that a search leaves, d = 2…6, s = 1, 2.", Rule(at_most=1e-3)),
        Claim("barycenter-s2", "app. B.7", "in the closure",
              "With s = 2 the reachable set contains the barycenter, for any d.", "The same for s = 2 alone.",
              Rule(at_most=1e-3)),
        Claim("gradient-stable", "app. B.8", "ρ = 1", "A doubly stochastic chain lets no gradient explode.",
              "Largest ||(Hᵀ)^63 δ|| / ||δ|| over exact methods.", Rule(at_most=1.0001)),
        Claim("gradient-bound", "app. B.8", "≤ C ρ^(n-1)",
              "The spectral radius bounds the gradient of a deep linear chain.",
              "Largest ||(Hᵀ)^(n-1) δ|| / (||δ|| ρ^(n-1)) over unconstrained H, n = 2…16.", Rule(at_most=1.0001)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        centers = [Barycenter(num_streams=d, expressivity=s) for d in (2, 3, 4, 5, 6) for s in (1, 2)]
        return [Formula(), *centers, *(Chain(method=name) for name in (*self.exact, "mhc", "hc"))]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        formula = only(records, "Formula").metrics
        centers = {
            (record.configuration["num_streams"], record.configuration["expressivity"]): record.metrics["distance"]
            for record in select(records, "Barycenter")
        }
        (d, s), worst = max(centers.items(), key=lambda item: item[1])
        missed = ", ".join(f"d = {d}, s = {s}" for (d, s), distance in sorted(centers.items()) if distance > 1e-3)
        worst_2 = max(distance for (_, s), distance in centers.items() if s == 2)
        stable = max(
            growth["largest"] for name in self.exact for growth in only(records, "Chain", method=name).metrics["growth"]
        )
        bound = max(only(records, "Chain", method="hc").metrics["beside_radius"][:15])
        return {
            "gradient-formula": Finding(formula["difference"], f"differs by {formula['difference']:.1e}"),
            "jacobian": Finding(formula["jacobian_at_zero"], f"norm {formula['jacobian_at_zero']:.1e} at zero logits"),
            "barycenter": Finding(
                worst, f"{worst:.2g} away at d = {d}, s = {s}" + (f"; not reached: {missed}" if missed else "")
            ),
            "barycenter-s2": Finding(worst_2, f"{worst_2:.1e} away at most, d = 2…6"),
            "gradient-stable": Finding(stable, f"grows {stable:.4f}-fold at most in 63 layers"),
            "gradient-bound": Finding(bound, f"{bound:.2f} times the bound at worst, 500 matrices I + N(0, 1/9)"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Growth over depth; how near the barycenter each size comes."""
        centers = [
            (
                record.configuration["num_streams"],
                record.configuration["expressivity"],
                f"{record.metrics['distance']:.1e}",
            )
            for record in select(records, "Barycenter")
        ]
        return [
            Plot(
                draw=lambda: self._draw(records),
                caption="Largest norm of a gradient after m - 1 layers of the same matrix, relative to the last "
                "layer's, of 500 matrices, d = 4: doubly stochastic ones never amplify.",
            ),
            Table(
                header=("d", "s", "distance"),
                rows=sorted(centers),
                caption="How far from the barycenter J/d the best rotation found stays (Frobenius). An orthogonal 3 × "
                "3 matrix of equal squares does not exist, so with s = 1 and d = 3 it is out of reach. The same "
                "holds for every d without a real Hadamard matrix.",
            ),
        ]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure()
        axes = figure.subplots()
        for record in select(records, "Chain"):
            largest = [growth["largest"] for growth in record.metrics["growth"]]
            axes.semilogy(range(2, len(largest) + 2), largest, **line(record.configuration["method"]))
        axes.set(xlabel="layers m", ylabel="largest relative gradient norm")
        axes.legend()
        return figure
