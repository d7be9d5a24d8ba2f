"""What can Kronecker products not do? Their error over d and factor size, their spectra, and averages of them.

The sections on Kronecker products, app. B.3 and H.2, and the counterexample to the proposition of app. B.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff import Kronecker
from gomhc.birkhoff.karpelevic import contains, karpelevic_boundary
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.learners import TERMS
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record, select

SIZES = {2: (4, 8, 16, 32), 3: (9, 27), 4: (16,), 5: (25,)}
"""Factor size -> numbers of streams beyond it that are its powers."""
ENOUGH = 4**2 / math.log(4)
"""Terms that are said to be enough at d = 4."""


@dataclass(frozen=True, kw_only=True)
class SpectrumRun(Run):
    """Eigenvalues of Kronecker products."""

    num_samples: int = 10_000
    """Random products."""
    seed: int = 0
    """Of their logits."""

    def execute(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        imaginary = 0.0
        for d in (4, 8):
            krom = Kronecker(num_streams=d)
            logits = torch.randn(self.num_samples, krom.num_logits, generator=generator, dtype=torch.float64)
            imaginary = max(imaginary, torch.linalg.eigvals(krom(3 * logits)).imag.abs().max().item())
        identity = torch.eye(3, dtype=torch.float64)
        product = torch.kron(identity[[1, 2, 0]], identity[[1, 0, 2]])  # a 3-cycle and a transposition, both of B_3
        cycle = torch.eye(4, dtype=torch.float64)[[1, 2, 3, 0]]
        eigenvalues = torch.linalg.eigvals(product).numpy()
        return {
            "largest_imaginary_part": imaginary,
            "eigenvalues": [[value.real, value.imag] for value in eigenvalues.tolist()],
            "outside": max(distance_outside(eigenvalues, 3)),
            "distance_to_cycle": Kronecker(num_streams=4).fit(cycle).distance.item(),
        }


def distance_outside(points: np.ndarray, num_streams: int) -> list[float]:
    """How far each point lies outside of the Karpelevič region, zero inside."""
    upper = karpelevic_boundary(num_streams)
    boundary = np.concatenate((upper, upper.conj()))
    nearest = np.abs(points[:, None] - boundary).min(1)
    return np.where(contains(points, num_streams), 0.0, nearest).tolist()


class KromHC(Experiment):
    """Error and spectrum of Kronecker products."""

    name = "kromhc"
    title = "What Kronecker products cannot do"
    paper = (
        "Sec. 4.1, app. B.3, H.2: products of 2 × 2 factors have real eigenvalues; products of q × q factors have "
        "none beyond those of B_q; the extra error grows as d and hardly depends on the size of factors; averages of "
        "n²/log n of them are fully expressive."
    )

    def runs(self, scale: Scale) -> Sequence[Run]:
        if scale == "quick":
            few: Sizes = {"num_targets": 8, "num_epochs": 2500}
            sizes, terms = [(2, 4), (2, 8), (2, 16), (4, 16)], [(4, k) for k in (1, 4, 12)]
        else:
            few = {"num_epochs": 10_000}
            sizes = [(factor, d) for factor, streams in SIZES.items() for d in streams]
            terms = [(4, k) for k in TERMS] + [(8, k) for k in (8, 16, 32)]
        return [
            SpectrumRun(),
            *(ToyRun(method=f"kromhc-of-{factor}", num_streams=d, inputs=inputs, **few)
              for factor, d in sizes for inputs in ("mask", "count")),
            *(ToyRun(method=f"kromhc-mean-{k}", num_streams=d, **few) for d, k in terms),
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for record in select(records, "SpectrumRun"):
            value = record.metrics["largest_imaginary_part"]
            found["kron-real"] = Finding(value, f"largest imaginary part {value:.1g}")
            value = record.metrics["outside"]
            found["kron-proposition"] = Finding(value, f"the eigenvalue -e^(2πi/3) lies {value:.3f} outside")
            value = record.metrics["distance_to_cycle"]
            found["kron-cycle"] = Finding(value, f"the nearest product is {value:.3f} away (Frobenius)")
        for claim, inputs in (("kron-linear", "mask"), ("kron-linear-coded", "count")):
            excess = {d: value for d in SIZES[2] if (value := _excess(records, "kromhc-of-2", d, inputs)) is not None}
            if len(excess) >= 3:
                exponent = float(np.polyfit(np.log(list(excess)), np.log(list(excess.values())), 1)[0])
                text = ", ".join(f"d = {d}: {value:.3g}" for d, value in excess.items())
                found[claim] = Finding(exponent, f"exponent {exponent:.2f}; excess {text}")
        two, four = (_excess(records, f"kromhc-of-{factor}", 16, "mask") for factor in (2, 4))
        if two and four:
            found["kron-factor"] = Finding(
                two / four, f"excess {two:.3g} with factors of 2, {four:.3g} with factors of 4"
            )
        if finding := self._averaged(records):
            found["kron-average"] = finding
        return found

    def _averaged(self, records: Sequence[Record]) -> Finding | None:
        excess = {k: value for k in TERMS if (value := _excess(records, f"kromhc-mean-{k}", 4, "mask")) is not None}
        enough = [value for k, value in excess.items() if k >= ENOUGH]
        if not enough:
            return None
        listed = ", ".join(f"{k}: {value:.2g}" for k, value in excess.items())
        text = f"excess by terms: {listed}; products of 2 × 2 factors mix d permutations, and so do averages"
        return Finding(min(enough) / (0.1**2 / 3), text)


def _excess(records: Sequence[Record], method: str, num_streams: int, inputs: str) -> float | None:
    """Final loss above the least that is possible on these samples."""
    where = {"method": method, "num_streams": num_streams, "inputs": inputs}
    final, lowest = metric(records, "final", **where), metric(records, "lowest", **where)
    return None if final is None or lowest is None else final - lowest
