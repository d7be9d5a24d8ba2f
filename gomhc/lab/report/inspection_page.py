"""How does an inspection look as a page? Heat maps over depth, who reads and writes where, and a table of it all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from gomhc.inspection import Inspection
from gomhc.inspection.findings import findings
from gomhc.lab.exhibits.exhibit import Plot, Table
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.report.inspection_table import COLUMNS
from gomhc.lab.report.page import Page, Section

WIDTH = 5.2
"""Inches: a phone shows letters of six points across so many legibly."""
MAPS_IN_A_ROW = 6
BLUE, ORANGE, TEAL, RED = "#0077BB", "#EE7733", "#009988", "#EE3377"
HEAT = "viridis"


def inspection_page(inspection: Inspection, title: str, text: str) -> Page:
    """All that was found out about a model, on this text."""
    sections = (_glance, _mixes, _reads_and_writes, _depth, _streams, _gradients, _numbers)
    lead = (
        f"{inspection.num_streams} residual streams, {len(inspection.names)} hyper-connections, looked at on "
        f"{inspection.num_tokens} tokens (loss {inspection.loss:.4f} nats a token): “{_excerpt(text)}”",
        "Each connection computes x_i ← Σ_j mix_ij x_j + write_i F(Σ_j read_j x_j). Connections are in the order of "
        "the forward pass; means and spreads are over tokens.",
    )
    return Page(title=title, lead=lead, sections=[section(inspection) for section in sections])


def _glance(inspection: Inspection) -> Section:
    found = findings(inspection)
    rows = [(name, value) for name, value in inspection.summary().items()]
    return Section(
        title="At a glance",
        anchor="glance",
        paragraphs=found or ["Nothing stands out: streams differ, are mixed, and all coefficients get gradients."],
        exhibits=[Table(header=("measure", "value"), rows=rows, caption="Of the whole model, as a trainer logs them.")],
    )


def _mixes(inspection: Inspection) -> Section:
    return Section(
        title="Mixing matrices over depth",
        anchor="mixes",
        paragraphs=[
            "Row i, column j: how much of stream j stream i gets. A bright diagonal keeps streams apart, an even "
            "colour averages them."
        ],
        exhibits=[
            Plot(
                draw=lambda: _maps(inspection.mix_mean, inspection.names, PowerNorm(0.5, 0, 1)),
                caption="Mean of mix over tokens. The colour grows with the square root, so that small entries show.",
            ),
            Plot(
                draw=lambda: _maps(inspection.mix_spread, inspection.names, _from_zero(inspection.mix_spread)),
                caption="Spread of mix over tokens: where it is dark, all tokens are mixed alike.",
            ),
        ],
    )


def _reads_and_writes(inspection: Inspection) -> Section:
    read, write = inspection.read_mean, inspection.write_mean
    return Section(
        title="Who reads and writes where",
        anchor="reads-writes",
        paragraphs=["One row a stream, one column a connection."],
        exhibits=[
            Plot(
                draw=lambda: _over_depth_map(read, inspection.names, _from_zero(read)),
                caption="read: how much of each stream the branch sees, mean over tokens.",
            ),
            Plot(
                draw=lambda: _over_depth_map(write, inspection.names, _from_zero(write)),
                caption="write: how much of the branch's output each stream gets, mean over tokens.",
            ),
        ],
    )


def _depth(inspection: Inspection) -> Section:
    def mixing(axes: Axes) -> None:
        axes.plot(inspection.distance_to_identity, color=BLUE, label="‖mix − I‖")
        axes.plot(inspection.entropy, color=ORANGE, linestyle="--", label="entropy / log d")
        axes.plot(inspection.second_eigenvalue, color=TEAL, linestyle="-.", label="|λ₂| of mix")
        axes.plot(inspection.composite_second_eigenvalue, color=RED, linestyle=":", label="|λ₂| of all mixes so far")
        axes.set_ylim(bottom=0)

    def gains(axes: Axes) -> None:
        axes.plot(inspection.gain_forward, color=BLUE, label="of a signal, up to here")
        axes.plot(inspection.gain_backward, color=ORANGE, linestyle="--", label="of a gradient, down to here")
        axes.ticklabel_format(useOffset=False)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.9), max(high, 1.1))

    return Section(
        title="What depth does",
        anchor="depth",
        exhibits=[
            Plot(
                draw=lambda: _lines(mixing, inspection.names),
                caption="How strongly each connection mixes. The second eigenvalue says how slowly streams become "
                "alike: that of the product of all mixes so far says what is left after so many connections.",
            ),
            Plot(
                draw=lambda: _lines(gains, inspection.names),
                caption="Largest amplification by the mixes together, worst token; one for doubly stochastic ones.",
            ),
        ],
    )


def _streams(inspection: Inspection) -> Section:
    similarity = inspection.stream_similarity

    def draw(axes: Axes) -> None:
        axes.plot(inspection.similarity, color=BLUE, label="mean cosine between two streams")
        axes.plot(inspection.stream_spread, color=ORANGE, linestyle="--", label="distance from their mean / its length")

    return Section(
        title="How alike the streams are",
        anchor="streams",
        paragraphs=["The streams that enter the first connection are equal. If they stay so, they have collapsed."],
        exhibits=[
            Plot(draw=lambda: _lines(draw, inspection.names), caption="Of the streams that enter each connection."),
            Plot(
                draw=lambda: _maps(
                    similarity, inspection.names, Normalize(min(similarity.min().item(), 0.99), 1), "cividis"
                ),
                caption=f"Cosine between streams, from {min(similarity.min().item(), 0.99):.3g} (dark) to 1 (bright).",
            ),
        ],
    )


def _gradients(inspection: Inspection) -> Section:
    def draw(axes: Axes) -> None:
        kinds = (("read", BLUE, "-"), ("write", ORANGE, "--"), ("mix", RED, ":"))
        for index, (name, color, dash) in enumerate(kinds):
            norms = inspection.coefficient_gradient[:, index]
            axes.plot(norms.where(norms > 0, math.nan), color=color, linestyle=dash, marker=".", label=name)
        if (inspection.coefficient_gradient > 0).any():
            axes.set_yscale("log")
        axes.set_ylabel("norm of the gradient")

    share = inspection.stream_gradient_share
    return Section(
        title="Who gets gradient",
        anchor="gradients",
        exhibits=[
            Plot(
                draw=lambda: _over_depth_map(share, inspection.names, _from_zero(share)),
                caption="Share of the loss's squared gradient that arrives at each stream that enters a connection.",
            ),
            Plot(
                draw=lambda: _lines(draw, inspection.names),
                caption="Norm of the loss's gradient at the logits of read, write and mix, over all tokens. What has "
                "none cannot learn: the first mix acts on equal streams, and the last feeds a mean.",
            ),
        ],
    )


def _numbers(inspection: Inspection) -> Section:
    columns = [getattr(inspection, field).tolist() for field in COLUMNS.values()]
    gradients = inspection.coefficient_gradient.T.tolist()
    rows = list(zip(inspection.names, *columns, *gradients, strict=True))
    header = ("connection", *COLUMNS, "∂ read", "∂ write", "∂ mix")
    return Section(title="Every connection", anchor="numbers", exhibits=[Table(header=header, rows=rows)])


def _maps(matrices: Tensor, names: Sequence[str], norm: Normalize, heat: str = HEAT) -> Figure:
    """A small heat map for each connection, in rows."""
    num_rows = math.ceil(len(names) / MAPS_IN_A_ROW)
    figure = new_figure(WIDTH, 1.05 * num_rows + 0.3)
    grid = figure.subplots(num_rows, MAPS_IN_A_ROW, squeeze=False).flatten()
    for axes in grid:
        axes.axis("off")
    for axes, matrix, name in zip(grid, matrices, names, strict=False):
        image = axes.pcolormesh(matrix.flip(0).numpy(), cmap=heat, norm=norm, rasterized=False)
        axes.set_aspect("equal")
        axes.set_title(name.replace(" ", "\n", 1), fontsize=6.5)
    figure.colorbar(image, ax=grid.tolist(), fraction=0.02, aspect=30)
    return figure


def _over_depth_map(values: Tensor, names: Sequence[str], norm: Normalize) -> Figure:
    """(depth, d) as one heat map: a row for each stream, a column for each connection."""
    figure = new_figure(WIDTH, 1.2 + 0.22 * values.shape[-1])
    axes = figure.subplots()
    image = axes.pcolormesh(values.T.numpy(), cmap=HEAT, norm=norm)
    axes.invert_yaxis()
    axes.set_yticks([stream + 0.5 for stream in range(values.shape[-1])], [str(s) for s in range(values.shape[-1])])
    axes.set_ylabel("stream")
    _name_depth(axes, names, 0.5)
    figure.colorbar(image, ax=axes, fraction=0.03)
    return figure


def _lines(draw: Callable[[Axes], None], names: Sequence[str]) -> Figure:
    figure = new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    draw(axes)
    axes.grid(alpha=0.25, color=INK)
    _name_depth(axes, names, 0.0)
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def _name_depth(axes: Axes, names: Sequence[str], offset: float) -> None:
    """At most a dozen names below, so that they can be read."""
    step = math.ceil(len(names) / 12)
    places = range(0, len(names), step)
    axes.set_xticks([place + offset for place in places], [names[place] for place in places], rotation=60, ha="right")
    axes.tick_params(axis="x", labelsize=7)


def _from_zero(values: Tensor) -> Normalize:
    return Normalize(0, max(values.max().item(), 1e-6))


def _excerpt(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"
