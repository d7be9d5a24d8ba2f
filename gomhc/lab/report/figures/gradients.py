"""Gradients of deep chains, and the distance from the barycenter."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gomhc.lab.report.page import Exhibit, Plot, Table
from gomhc.lab.report.style import line, new_figure
from gomhc.lab.results.record import Record, select


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """Growth over depth; how near the barycenter each size comes."""
    centers = [
        (record.configuration["num_streams"], record.configuration["expressivity"], f"{record.metrics['distance']:.1e}")
        for record in select(records, "Barycenter")
    ]
    return [
        Plot(
            draw=lambda: _draw(records),
            caption="Largest norm of a gradient behind m - 1 layers of the same matrix, relative to the last layer's, "
            "of 500 matrices, d = 4: doubly stochastic ones never amplify.",
        ),
        Table(
            header=("d", "s", "distance"),
            rows=sorted(centers),
            caption="How far from the barycenter J/d the best rotation found stays (Frobenius). An orthogonal 3 × 3 "
            "matrix of equal squares does not exist, so with s = 1 and d = 3 it is out of reach; so it is for every d "
            "without a real Hadamard matrix.",
        ),
    ]


def _draw(records: Sequence[Record]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for record in select(records, "Chain"):
        largest = [growth["largest"] for growth in record.metrics["growth"]]
        axes.semilogy(range(2, len(largest) + 2), largest, **line(record.configuration["method"]))
    axes.set(xlabel="layers m", ylabel="largest relative gradient norm")
    axes.legend()
    return figure
