"""Where gradients vanish: mHC-lite's gate and crosstalk (app. B.10), and the corners of the polytope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.func import jacrev, vmap

from gomhc.birkhoff import as_mixing
from gomhc.birkhoff.permutation_matrices import permutation_matrices
from gomhc.lab.exhibits.curve_plots import legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.results.claim import Claim, Finding, Headline, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class GateRun(Run):
    """The gradient of mHC-lite's distance to a permutation, by autograd and by the paper's formula."""

    num_streams: int
    """n"""
    num_samples: int = 64
    """Random logits."""
    seed: int = 0
    """Seed of the random logits."""

    def execute(self) -> dict[str, Any]:
        n, generator = self.num_streams, torch.Generator().manual_seed(self.seed)
        vertices = permutation_matrices(n, torch.zeros(0, dtype=torch.float64))
        target = vertices[-1]
        logits = torch.randn(self.num_samples, len(vertices), generator=generator, dtype=torch.float64)
        logits = torch.cat((torch.zeros_like(logits[:1]), logits)).requires_grad_()
        weights = logits.softmax(-1)
        mixed = torch.einsum("tk, kij -> tij", weights, vertices)
        (mixed - target).square().mean((1, 2)).sum().backward()
        assert logits.grad is not None
        by_autograd, weights = logits.grad[:, -1], weights.detach()
        by_weight = 2 / n**2 * torch.einsum("tij, kij -> tk", mixed.detach() - target, vertices)
        free = by_weight[:, -1] - (weights * by_weight).sum(-1)
        by_formula = weights[:, -1] * free
        overlap = torch.einsum("kij, ij -> k", vertices, target)
        return {
            "formula_error": ((by_formula - by_autograd).abs() / by_autograd.abs()).max().item(),
            "gate_times_factorial": (by_autograd[0] / free[0]).item() * math.factorial(n),
            "crosstalk": (overlap[:-1].sum() / len(vertices)).item(),
            "gradient_at_uniform": by_autograd[0].abs().item(),
        }


@dataclass(frozen=True, kw_only=True)
class CornerRun(Run):
    """Norm of the Jacobian of the map at matrices ever closer to the identity."""

    method: str
    """A mixing, as `gomhc.birkhoff.as_mixing` takes it."""
    num_streams: int = 4
    """d"""
    num_samples: int = 32
    """Starts at each distance."""
    seed: int = 0
    """Seed of the random logits."""

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        leaks = np.geomspace(1e-4, 0.4, 12)
        norms = []
        for leak in leaks.tolist():
            learner = replace(as_mixing(self.method, self.num_streams), initial_leak=leak)
            logits = torch.stack([learner.draw_near_identity(generator) for _ in range(self.num_samples)])
            jacobian = vmap(jacrev(learner.matrix))(logits)
            norms.append(jacobian.flatten(1).norm(dim=1).median().item())
        return {"leaks": leaks.tolist(), "jacobian_norms": norms}


class Vanishing(Experiment):
    """Gradients of mHC-lite, and of others near a corner."""

    name = "vanishing"
    title = "Vanishing gradients and crosstalk"
    paper = (
        "App. B.10: mHC-lite's gradient at a permutation's logit is gated by that permutation's weight, 1/n! at a "
        "uniform start; near it, crosstalk is that of the barycenter. Sec. 3.3: the Cayley transform keeps a "
        "well-conditioned Jacobian."
    )
    order = 190
    claims = (
        Claim("gated", "app. B.10", "α (∂α - Σ α ∂α)", "mHC-lite's gradient is gated by its own weight, as derived.",
              "Largest relative difference from autograd.", Rule(at_most=1e-9)),
        Claim("gate-start", "app. B.10", "1/n!", "At a uniform start the gate is 1/n!.",
              "Gradient at the target's logit times n!, largest over smallest over n = 2…6, divided by the free part.",
              Rule(0.99, 1.01)),
        Claim("crosstalk", "app. B.10", "⟨J/n, P⟩ = 1", "Near uniform weights crosstalk is that of the barycenter.",
              "Crosstalk at uniform weights (without its own 1/n! · n), n = 4…6: largest |it - 1|.", Rule(at_most=0.2)),
        Claim("corner-jacobian", "sec. 3.3", "well-conditioned", "go's Jacobian stays well-conditioned throughout.",
              "Exponent of its norm in the distance from a corner of the polytope, s = 2, d = 4.", Rule(at_most=0.1)),
        Claim("corner-advantage", "sec. 3.3, app. B.10", "mitigates",
              "Towards corners mHC-lite's gradient vanishes faster.",
              "The same exponent of mHC-lite minus that of go s = 2.", Rule(at_least=0.25)),
    )  # fmt: skip
    headlines = (
        Headline(
            rank=40,
            claim="corner-jacobian",
            beside=("corner-advantage",),
            number="distance^{0:.2f}",
            holds="Towards the identity, a corner of the polytope, the Jacobian of go-mHC keeps its norm (distance to "
            "the power {0:.2f}). For mHC-lite the exponent is {1:.2f} larger.",
            fails="Near the identity, the gradient of go-mHC vanishes too, as distance^{0:.2f}, but more slowly than "
            "that of mHC-lite, whose exponent is {1:.2f} larger. Start a network near the identity, not on it.",
        ),
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        methods = ("go-s1", "go-s2", "mhc-lite", "mhc", "transportation")
        return [*(GateRun(num_streams=n) for n in (2, 3, 4, 5, 6)), *(CornerRun(method=method) for method in methods)]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        gates = {record.configuration["num_streams"]: record.metrics for record in select(records, "GateRun")}
        if gates:
            worst = max(gate["formula_error"] for gate in gates.values())
            findings["gated"] = Finding(worst, f"differs by {worst:.1g}, n = {min(gates)}…{max(gates)}")
            times = [gate["gate_times_factorial"] for gate in gates.values()]
            smallest = gates[max(gates)]["gradient_at_uniform"]
            findings["gate-start"] = Finding(
                max(times) / min(times), f"gate times n! is {times[0]:.4f}; gradient {smallest:.1g}"
            )
            off = {n: abs(gate["crosstalk"] - 1) for n, gate in gates.items() if n >= 4}
            if off:
                text = ", ".join(f"n = {n}: {gates[n]['crosstalk']:.3f}" for n in off)
                findings["crosstalk"] = Finding(max(off.values()), text)
        corners = {record.configuration["method"]: record.metrics for record in select(records, "CornerRun")}
        if {"go-s2", "mhc-lite"} <= corners.keys():
            slopes = {method: _slope(corner) for method, corner in corners.items()}
            text = ", ".join(f"{method} leak^{slope:.2f}" for method, slope in slopes.items())
            findings["corner-jacobian"] = Finding(slopes["go-s2"], f"norm of the Jacobian near the identity: {text}")
            findings["corner-advantage"] = Finding(slopes["mhc-lite"] - slopes["go-s2"], text)
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Jacobians over the distance from a corner, and the gate."""
        gates = sorted(select(records, "GateRun"), key=lambda record: record.configuration["num_streams"])
        rows = [
            (record.configuration["num_streams"], record.metrics["gradient_at_uniform"], record.metrics["crosstalk"])
            for record in gates
        ]
        caption = (
            "Median norm of the Jacobian of the map at matrices whose mean diagonal is 1 - leak, d = 4. It vanishes at "
            "corners of the polytope for go-mHC too, as the square root of the distance, and for exponentials as the "
            "distance itself."
        )
        note = "mHC-lite at uniform weights: gradient at the logit of the wanted permutation, and crosstalk (1 - n/n!)."
        return [
            Plot(draw=lambda: self._draw(select(records, "CornerRun")), caption=caption),
            Table(header=("n", "gradient", "crosstalk"), rows=rows, caption=note),
        ]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure()
        axes = figure.subplots()
        for record in records:
            axes.loglog(
                record.metrics["leaks"], record.metrics["jacobian_norms"], **line(record.configuration["method"])
            )
        axes.set(xlabel="leak (distance from the identity)", ylabel="norm of the Jacobian")
        legend(axes)
        return figure


def _slope(corner: dict[str, Any]) -> float:
    """Exponent of the Jacobian's norm in the distance from the corner, over the closest half."""
    half = len(corner["leaks"]) // 2
    return float(np.polyfit(np.log(corner["leaks"][:half]), np.log(corner["jacobian_norms"][:half]), 1)[0])
