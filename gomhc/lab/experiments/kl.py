"""KL divergence and angles between learned matrices and their targets (app. F.1, F.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gomhc.birkhoff.measures import geodesic_distance, kl_divergence
from gomhc.lab.exhibits.curve_plots import legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot
from gomhc.lab.exhibits.style import line, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale, Sizes
from gomhc.lab.experiments.toy import ToyRun, log_spaced, metric, ratio
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("go-square-s1", "go-square-s2", "go-square-s3", "mhc-lite", "kromhc")


@dataclass(frozen=True, kw_only=True)
class PathRun(ToyRun):
    """The matrices on the way: their divergence from the target, and angles from start and target where asked for."""

    angles: bool = False
    """Measure angles too; all sign patterns are tried, so d is at most 4."""

    def execute(self) -> dict[str, Any]:
        problem, epochs = self.begin()
        kept = log_spaced(self.num_epochs + 1)[::4].tolist()
        wanted = {*kept, self.num_epochs}
        path = {number: epoch.matrices.double() for number, epoch in enumerate(epochs) if number in wanted}
        divergence = [_mean(kl_divergence(problem.target, matrices)) for matrices in path.values()]
        result = {"epochs": list(path), "divergence": divergence, "final_divergence": divergence[-1]}
        if self.angles:
            result["from_start"] = [_mean(geodesic_distance(path[0], matrices)) for matrices in path.values()]
            result["to_target"] = [_mean(geodesic_distance(matrices, problem.target)) for matrices in path.values()]
        return result


def _mean(values: Tensor) -> float:
    return values.mean().item()


class Divergence(Experiment):
    """KL divergence and geodesic distance."""

    name = "kl"
    title = "KL divergence and angles"
    paper = (
        "App. F.1, F.2: KromHC has the largest KL divergence from targets, it falls as s grows, and with s ≥ 2 it is "
        "near zero. The angle between the rotations behind two matrices measures how far a method has gone and has to "
        "go."
    )
    order = 230
    claims = (
        Claim("kl-kromhc", "app. F.2", "highest", "KromHC has the largest KL divergence from random targets.",
              "KromHC's mean divergence over the next largest, d = 4.", Rule(at_least=1)),
        Claim("kl-s", "app. F.2", "improves", "The divergence falls as s grows.",
              "Mean divergence: s = 1 over s = 2, d = 4.", Rule(at_least=1.5)),
        Claim("kl-optimal", "app. F.2", "near 0", "With s ≥ 2 nearly nothing remains.",
              "Mean divergence of s = 2 in nats, d = 4.", Rule(at_most=1e-3)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        sizes: Sizes = {"num_targets": 16, "num_epochs": 4000} if scale == "quick" else {"num_epochs": 20_000}
        angular: Sizes = {"num_targets": 8, "num_epochs": 2000} if scale == "quick" else {"num_epochs": 10_000}
        return [
            *(PathRun(method=method, **sizes) for method in METHODS),
            *(
                PathRun(method=method, num_streams=3, angles=True, **angular)
                for method in ("go-square-s1", "go-square-s2", "mhc-lite")
            ),
        ]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        records = select(records, num_streams=4)
        finals = {method: metric(records, "final_divergence", method=method) for method in METHODS}
        if any(value is None for value in finals.values()):
            return {}
        text = ", ".join(f"{method} {value:.2g}" for method, value in finals.items())
        next_largest = max(value or 0 for method, value in finals.items() if method != "kromhc")
        return {
            "kl-kromhc": Finding((finals["kromhc"] or 0) / next_largest, f"nats: {text}"),
            "kl-s": Finding(ratio(records, "final_divergence", "go-square-s1", "go-square-s2") or 0, f"nats: {text}"),
            "kl-optimal": Finding(finals["go-square-s2"] or 0, f"{finals['go-square-s2']:.2g} nats"),
        }

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Both over epochs."""
        caption = (
            "Left: mean KL divergence of the learned matrix from its target, in nats per row, d = 4. Right: angle "
            "between the rotation behind the matrix and that behind its target against the angle from its start, d = "
            "3; training goes from the left to the right, and from one dot to the next the time doubles."
        )
        return [Plot(draw=lambda: self._draw(records), caption=caption)]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure(8.6, 3.9)
        left, right = figure.subplots(1, 2)
        for record in select(records, angles=False):
            epochs = [epoch + 1 for epoch in record.metrics["epochs"]]
            left.loglog(epochs, record.metrics["divergence"], **line(record.configuration["method"]))
        for record in select(records, angles=True):
            style = line(record.configuration["method"])
            right.plot(record.metrics["from_start"], record.metrics["to_target"], marker="o", markersize=3, **style)
        left.set(xlabel="epoch + 1", ylabel="KL divergence")
        right.set(xlabel="angle from the start", ylabel="angle to the target")
        legend(left)
        legend(right)
        return figure
