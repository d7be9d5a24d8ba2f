"""The limits of Kronecker products: error over d and factor size, spectra, and averages of them.

The sections on Kronecker products, app. B.3 and H.2, and the counterexample to the proposition of app. B.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from gomhc.birkhoff import Kronecker
from gomhc.birkhoff.karpelevic import contains, karpelevic_boundary
from gomhc.lab.exhibits.curve_plots import legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, metric
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZES = {2: (4, 8, 16, 32), 3: (9, 27), 4: (16,), 5: (25,)}
"""Factor size -> numbers of streams beyond it that are its powers."""
TERMS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of Kronecker products that are averaged."""
ENOUGH = 4**2 / math.log(4)
"""Terms that are said to be enough at d = 4."""


@dataclass(frozen=True, kw_only=True)
class SpectrumRun(Run):
    """Eigenvalues of Kronecker products."""

    num_samples: int = 10_000
    """Random products."""
    seed: int = 0
    """Seed of their logits."""

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
    """How far each point lies outside the Karpelevič region, zero inside."""
    upper = karpelevic_boundary(num_streams)
    boundary = np.concatenate((upper, upper.conj()))
    nearest = np.abs(points[:, None] - boundary).min(1)
    return np.where(contains(points, num_streams), 0.0, nearest).tolist()


def product_of(factor: int, num_streams: int) -> str:
    """The mixing whose factors all have this size, of which num_streams is a power."""
    return f"kromhc:factors={(factor,) * round(math.log(num_streams, factor))}"


def average_of(num_terms: int) -> str:
    """The mixing that averages so many Kronecker products of 2 × 2 factors (app. H.2)."""
    return f"average:num_terms={num_terms},term=kromhc"


class KromHC(Experiment):
    """Error and spectrum of Kronecker products."""

    name = "kromhc"
    title = "What Kronecker products cannot do"
    paper = (
        "Sec. 4.1, app. B.3, H.2: products of 2 × 2 factors have real eigenvalues; products of q × q factors have "
        "none beyond those of B_q; the extra error grows as d and hardly depends on the size of factors; averages of "
        "n²/log n of them are fully expressive."
    )
    order = 50
    claims = (
        Claim("kron-real", "sec. 4.1", "[-1, 1]", "Products of 2×2 factors have real eigenvalues.",
              "Largest |imaginary part|, d = 4 and 8.", Rule(at_most=1e-6)),
        Claim("kron-proposition", "app. B.3", "identical",
              "Kronecker products of B_q have no eigenvalues beyond those of B_q.",
              "Largest distance of an eigenvalue outside the region of q = 3 (a 3-cycle ⊗ a transposition).",
              Rule(at_most=1e-6)),
        Claim("kron-cycle", "sec. 4.1", "none", "KromHC cannot represent a cycle of more than two.",
              "Smallest distance to the 4-cycle of d = 4 (Frobenius).", Rule(at_least=0.1)),
        Claim("kron-linear", "sec. 4.1, app. B.3", "O(d)", "KromHC's extra error grows as d.",
              "Exponent of the excess over the least loss of the samples, factors of 2, d = 4…32, inputs in [0, 1).",
              Rule(0.7, 1.3)),
        Claim("kron-linear-coded", "app. B.3", "O(d)",
              "KromHC's extra error grows as d where inputs are multiplied by d.",
              "The same with the published code's inputs.", Rule(0.7, 1.3)),
        Claim("kron-factor", "app. B.3", "little dependence", "At d = 16 factors of 4 are no better than factors of 2.",
              "Excess over the floor: factors of 2 over factors of 4.", Rule(0.67, 1.5)),
        Claim("kron-average", "app. H.2", "n²/log n", "Averaging n²/log n KromHC matrices reaches every matrix.",
              "Loss above the least possible, over ε²/3, of averages of at least n²/ln n terms, d = 4.",
              Rule(at_most=0.02)),
    )  # fmt: skip

    COLORS: ClassVar = {2: "#009988", 3: "#0077BB", 4: "#EE7733", 5: "#CC3311"}

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
            *(ToyRun(method=product_of(factor, d), num_streams=d, inputs=inputs, **few)
              for factor, d in sizes for inputs in ("mask", "count")),
            *(ToyRun(method=average_of(k), num_streams=d, **few) for d, k in terms),
        ]  # fmt: skip

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        findings: dict[str, Finding] = {}
        for record in select(records, "SpectrumRun"):
            value = record.metrics["largest_imaginary_part"]
            findings["kron-real"] = Finding(value, f"largest imaginary part {value:.1g}")
            value = record.metrics["outside"]
            findings["kron-proposition"] = Finding(value, f"the eigenvalue -e^(2πi/3) lies {value:.3f} outside")
            value = record.metrics["distance_to_cycle"]
            findings["kron-cycle"] = Finding(value, f"the nearest product is {value:.3f} away (Frobenius)")
        for claim, inputs in (("kron-linear", "mask"), ("kron-linear-coded", "count")):
            excess = {
                d: value for d in SIZES[2] if (value := _excess(records, product_of(2, d), d, inputs)) is not None
            }
            if len(excess) >= 3:
                exponent = float(np.polyfit(np.log(list(excess)), np.log(list(excess.values())), 1)[0])
                text = ", ".join(f"d = {d}: {value:.3g}" for d, value in excess.items())
                findings[claim] = Finding(exponent, f"exponent {exponent:.2f}; excess {text}")
        two, four = (_excess(records, product_of(factor, 16), 16, "mask") for factor in (2, 4))
        if two and four:
            findings["kron-factor"] = Finding(
                two / four, f"excess {two:.3g} with factors of 2, {four:.3g} with factors of 4"
            )
        if finding := self._averaged(records):
            findings["kron-average"] = finding
        return findings

    def _averaged(self, records: Sequence[Record]) -> Finding | None:
        excess = {k: value for k in TERMS if (value := _excess(records, average_of(k), 4, "mask")) is not None}
        enough = [value for k, value in excess.items() if k >= ENOUGH]
        if not enough:
            return None
        listed = ", ".join(f"{k}: {value:.2g}" for k, value in excess.items())
        text = f"excess by terms: {listed}; products of 2 × 2 factors mix d permutations, and so do averages"
        return Finding(min(enough) / (0.1**2 / 3), text)

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Excess over d for both kinds of inputs, and over the number of averaged terms."""
        caption = (
            "Final loss above the least that is possible on the samples. Left and middle: KromHC over d, by the size "
            "of its factors. With inputs of one size it falls as d grows; with inputs times d, as in the published "
            "code, it grows. Right: averages of several KromHC matrices over their number; dashed: 2 % of the noise "
            "floor."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption)]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(9.6, 3.8)
        panels = figure.subplots(1, 3)
        for axes, inputs, title in zip(panels, ("mask", "count"), ("inputs in [0, 1)", "inputs times d"), strict=False):
            for factor, color in self.COLORS.items():
                excess = {d: _excess(records, product_of(factor, d), d, inputs) for d in SIZES[factor]}
                self._line(axes, excess, "o-", color=color, label=f"factors of {factor}")
            axes.set(xlabel="streams d", title=title)
            ticks = sorted({r.configuration["num_streams"] for r in select(records, inputs=inputs)})
            axes.set_xticks(ticks, labels=[str(d) if d & (d - 1) == 0 else "" for d in ticks])
            axes.minorticks_off()
        for d, style in ((4, "o-"), (8, "s--")):
            excess = {terms: _excess(records, average_of(terms), d, "mask") for terms in TERMS}
            self._line(panels[2], excess, style, color="#0077BB", label=f"d = {d}")
        panels[2].axhline(0.02 * 0.1**2 / 3, color=INK, linestyle="--", linewidth=1)
        panels[2].set(xlabel="terms averaged", title="averages")
        panels[0].set_ylabel("loss above the least possible")
        for axes in panels:
            legend(axes)
        return figure

    def _line(self, axes: Axes, excess: Mapping[int, float | None], style: str, **options: Any) -> None:
        """Plot what was measured, if anything was."""
        pairs = [(size, value) for size, value in excess.items() if value is not None]
        if pairs:
            axes.loglog(*zip(*pairs, strict=True), style, markersize=5, **options)


def _excess(records: Sequence[Record], method: str, num_streams: int, inputs: str) -> float | None:
    """Final loss above the least that is possible on these samples."""
    where = {"method": method, "num_streams": num_streams, "inputs": inputs}
    final, lowest = metric(records, "final", **where), metric(records, "lowest", **where)
    return None if final is None or lowest is None else final - lowest
