"""The effect of noise on the target matrix on the loss and on the speed (app. B.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gomhc.birkhoff import SAMPLERS
from gomhc.lab.exhibits.curve_plots import curve_plot
from gomhc.lab.exhibits.exhibit import Exhibit, Table
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, quick_epochs, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

LEVELS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
STREAMS = (2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class FloorRun(Run):
    """The loss at W = T where the noise on T is drawn anew for each sample."""

    num_streams: int
    """d"""
    projector_noise: float = 0.1
    """sigma_p"""
    noise: float = 0.1
    """epsilon"""
    num_samples: int = 200_000
    """Samples, each with its own target."""
    seed: int = 0
    """Seed of everything that is drawn."""

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        d, total, power = self.num_streams, 0.0, 0.0
        for size in _chunks(self.num_samples, 10_000):
            draw = torch.rand(2, size, d, generator=generator, dtype=torch.float64)
            fluctuation = self.projector_noise * torch.randn(size, d, d, generator=generator, dtype=torch.float64)
            target = SAMPLERS["haar-orthogonal"](d, size, generator)  # which one does not matter: W = T
            outputs = torch.einsum("nij, nj -> ni", target + fluctuation, draw[0]) + self.noise * draw[1]
            error = outputs - torch.einsum("nij, nj -> ni", target, draw[0])
            total += error.square().mean().item() * size / self.num_samples
            power += draw[0].square().mean().item() * size / self.num_samples
        formula = d * self.projector_noise**2 * power + self.noise**2 / 3
        return {"loss": total, "formula": formula}


def _chunks(total: int, size: int) -> list[int]:
    """Sizes of the parts into which so many samples are cut."""
    return [size] * (total // size) + [total % size] * (total % size > 0)


class ProjectorNoise(Experiment):
    """Noise on the target matrix."""

    name = "projector-noise"
    title = "Noise on the target matrix"
    paper = (
        "App. B.2: noise of standard deviation σp on the target matrix adds d σp² σv² to the floor, linear in d; for "
        "σp from 1e-6 to 0.1 training behaves as without it."
    )
    order = 150
    claims = (
        Claim("projector-floor", "app. B.2", "d σp² σv² + ε²/3 + …",
              "Noise on the target matrix adds d σp² σv² to the floor.",
              "Largest relative error of the formula for expected loss.", Rule(at_most=0.05)),
        Claim("projector-linear", "app. B.2", "linear in d",
              "The part of the floor that is due to noise on the target grows linearly with d.", "Its exponent in d.",
              Rule(0.9, 1.1)),
        Claim("projector-same", "app. B.2", "same behaviour", "go converges sooner than mHC-lite at every σp.",
              "Smallest ratio of epochs to converge, mHC-lite over go s = 2.", Rule(at_least=1)),
        Claim("projector-fixed", "app. B.2", "d σp² σv² + ε²/3 + …",
              "Training ends at that floor where all samples of a target share the noise of its matrix.",
              "Final loss of go s = 2 over the formula, d = 4, σp = 0.1.", Rule(0.95, 1.05)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        quick = scale == "quick"
        levels = (1e-6, 1e-1) if quick else LEVELS
        go = ("go-square-s2",) if quick else ("go-square-s1", "go-square-s2")
        rivals = ("mhc-lite",) if quick else ("mhc-lite", "kromhc")
        sizes: Sizes = {"num_targets": 16} if quick else {}
        return [
            *(FloorRun(num_streams=d, num_samples=20_000 if quick else 200_000) for d in STREAMS),
            *(ToyRun(method=method, projector_noise=level,
                     num_epochs=quick_epochs(method) if quick else 20_000, **sizes)
              for level in levels
              for method in (*go, *rivals)),
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        floors = sorted(select(records, "FloorRun"), key=lambda record: record.configuration["num_streams"])
        if len(floors) >= 2:
            worst = max(abs(record.metrics["loss"] / record.metrics["formula"] - 1) for record in floors)
            findings["projector-floor"] = Finding(worst, f"off by {worst:.2%} at most, σv² = E v²")
            low, high = floors[0], floors[-1]
            added = [record.metrics["loss"] - record.configuration["noise"] ** 2 / 3 for record in (low, high)]
            span = math.log(high.configuration["num_streams"] / low.configuration["num_streams"])
            exponent = math.log(added[1] / added[0]) / span
            findings["projector-linear"] = Finding(exponent, f"exponent {exponent:.3f}")
        trained = select(records, "ToyRun")
        pairs = {
            level: ratio(trained, "converged", "mhc-lite", "go-square-s2", projector_noise=level) for level in LEVELS
        }
        ratios = {level: value for level, value in pairs.items() if value is not None}
        if ratios:
            text = ", ".join(f"{value:.1f} (σp = {level:g})" for level, value in ratios.items())
            findings["projector-same"] = Finding(min(ratios.values()), text)
        for record in select(trained, method="go-square-s2", projector_noise=0.1):
            formula = 4 * 0.1**2 / 3 + 0.1**2 / 3
            value = record.metrics["final"] / formula
            text = f"trained to {record.metrics['final']:.4g}, where the formula says {formula:.4g} (d = 4, σp = 0.1)"
            findings["projector-fixed"] = Finding(value, text)
        return findings

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """A panel for each noise, and the floor where noise is drawn anew for each sample."""
        trained = select(records, "ToyRun")
        levels = sorted({record.configuration["projector_noise"] for record in trained})
        panels = [(f"σp = {level:g}", {"projector_noise": level}) for level in levels]
        caption = (
            "Loss over epochs where each target matrix has Gaussian noise of standard deviation σp, the same for all "
            "its samples."
        )
        rows = [
            (r.configuration["num_streams"], r.metrics["loss"], r.metrics["formula"])
            for r in select(records, "FloorRun")
        ]
        note = "Loss at W = T where the matrix has new noise for each sample (σp = 0.1), and d σp² E v² + ε²/3."
        table = Table(header=("d", "loss", "formula"), rows=sorted(rows), caption=note)
        return [*([curve_plot(trained, panels, caption)] if trained else []), table]
