"""Amax gain over depth."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.experiments.gain import DEPTHS
from gomhc.lab.report.page import Exhibit, Plot
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Gain and distance from the barycenter."""
    caption = (
        "Left: forward amax gain of products of random mixing matrices, d = 4, median of 200 chains, largest shaded; "
        "every exact method lies on one. Right: the largest distance of a product from the barycenter."
    )
    return [Plot(draw=lambda: _draw(records), caption=caption)]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure(8, 3.6)
    gain, distance = figure.subplots(1, 2)
    for record in records:
        style = line(record.configuration["method"]) | (
            {"label": "targets (sampler)"} if record.configuration["method"] == "targets" else {}
        )
        forward = record.metrics["forward"]
        gain.loglog(DEPTHS, [step["median"] for step in forward], **style)
        gain.fill_between(
            DEPTHS, [step["smallest"] for step in forward], [step["largest"] for step in forward],
            color=style["color"], alpha=0.15, linewidth=0,
        )  # fmt: skip
        if record.configuration["method"] != "hc":
            distance.loglog(DEPTHS, [max(value, 1e-8) for value in record.metrics["distance"]], **style)
    gain.set(xlabel="matrices in the product", ylabel="amax gain, forward")
    distance.set(xlabel="matrices in the product", ylabel="largest distance from J/d")
    figure.legend(*gain.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
