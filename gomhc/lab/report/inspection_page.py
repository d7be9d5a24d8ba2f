"""The page of `gomhc inspect --html`: the health of the streams, heat maps and curves over depth, all connections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from gomhc.inspection import Inspection
from gomhc.inspection.findings import checks, findings, verdict
from gomhc.lab.exhibits.exhibit import Badge, Plot, Table
from gomhc.lab.exhibits.style import INK, new_figure
from gomhc.lab.report.inspection_columns import COLUMNS, GRADIENTS
from gomhc.lab.report.page import Page, Section

WIDTH = 5.2
"""Width of a figure in inches, at which letters of six points are legible on a phone."""
MAPS_IN_A_ROW = 6
BLUE, ORANGE, TEAL, RED = "#0077BB", "#EE7733", "#009988", "#EE3377"
HEAT = "viridis"


def inspection_page(inspection: Inspection, title: str, text: str) -> Page:
    """Return the page of an inspected model; `text` is what the model read."""
    sections = (_glance, _mixes, _reads_and_writes, _depth, _streams, _gradients, _numbers)
    lead = (
        f"{inspection.num_streams} residual streams, {len(inspection.names)} hyper-connections, inspected on "
        f"{inspection.num_tokens} tokens (loss {inspection.loss:.4f} nats per token): “{_excerpt(text)}”",
        "Each connection computes x_i ← Σ_j mix_ij x_j + write_i F(Σ_j read_j x_j). Connections are in the order of "
        "the forward pass; means and standard deviations are over tokens.",
    )
    return Page(
        title=title,
        found=[verdict(inspection), *findings(inspection)],
        opening=[_health(inspection)],
        lead=lead,
        sections=[section(inspection) for section in sections],
    )


def _health(inspection: Inspection) -> Table:
    rows = [
        (Badge("passed", "good") if check.passed else Badge("failed", "bad"), check.name, check.value, check.limit)
        for check in checks(inspection)
    ]
    return Table(header=("result", "check", "measured", "healthy if"), rows=rows, wordy=True)


def _glance(inspection: Inspection) -> Section:
    rows = list(inspection.summary().items())
    return Section(
        title="At a glance",
        anchor="glance",
        exhibits=[
            Table(header=("measure", "value"), rows=rows, caption="Numbers for the whole model, as in training logs.")
        ],
    )


def _mixes(inspection: Inspection) -> Section:
    return Section(
        title="Mixing matrices over depth",
        anchor="mixes",
        paragraphs=[
            "Row i, column j is the weight of stream j in the new stream i. A bright diagonal keeps streams apart; a "
            "uniform colour averages them."
        ],
        exhibits=[
            Plot(
                draw=lambda: _maps(inspection.mix_mean, inspection.names, PowerNorm(0.5, 0, 1)),
                caption="Mean of mix over tokens. The colour scale is a square root, so that small entries are seen.",
            ),
            Plot(
                draw=lambda: _maps(inspection.mix_spread, inspection.names, _from_zero(inspection.mix_spread)),
                caption="Standard deviation of mix over tokens. Where it is dark, all tokens are mixed alike.",
            ),
        ],
    )


def _reads_and_writes(inspection: Inspection) -> Section:
    read, write = inspection.read_mean, inspection.write_mean
    return Section(
        title="Reads and writes",
        anchor="reads-writes",
        paragraphs=["Each row is a stream, each column a connection."],
        exhibits=[
            Plot(
                draw=lambda: _over_depth_map(read, inspection.names, _from_zero(read)),
                caption="Read: weight of each stream in the branch's input, mean over tokens.",
            ),
            Plot(
                draw=lambda: _over_depth_map(write, inspection.names, _from_zero(write)),
                caption="Write: weight of the branch's output in each stream, mean over tokens.",
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
        axes.plot(inspection.gain_forward, color=BLUE, label="of a signal, from the first connection")
        axes.plot(inspection.gain_backward, color=ORANGE, linestyle="--", label="of a gradient, from the last one")
        axes.ticklabel_format(useOffset=False)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.9), max(high, 1.1))

    return Section(
        title="Mixing and gain over depth",
        anchor="depth",
        exhibits=[
            Plot(
                draw=lambda: _lines(mixing, inspection.names),
                caption="How strongly each connection mixes. The smaller the second eigenvalue, the more alike the "
                "streams become. For the product of all mixes so far, it shows how much of their differences is left.",
            ),
            Plot(
                draw=lambda: _lines(gains, inspection.names),
                caption="Largest amplification by the product of mixes, over all tokens; 1 if all mixes are doubly "
                "stochastic.",
            ),
        ],
    )


def _streams(inspection: Inspection) -> Section:
    similarity = inspection.stream_similarity

    def draw(axes: Axes) -> None:
        axes.plot(inspection.similarity, color=BLUE, label="mean cosine between two streams")
        axes.plot(inspection.stream_spread, color=ORANGE, linestyle="--", label="distance from their mean / its norm")

    return Section(
        title="Similarity of the streams",
        anchor="streams",
        paragraphs=["The input streams of the first connection are equal. If they stay equal, they have collapsed."],
        exhibits=[
            Plot(
                draw=lambda: _lines(draw, inspection.names),
                caption="Similarity and spread of the input streams of each connection.",
            ),
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
        title="Gradients",
        anchor="gradients",
        exhibits=[
            Plot(
                draw=lambda: _over_depth_map(share, inspection.names, _from_zero(share)),
                caption="Share of the loss's squared gradient in each input stream of a connection.",
            ),
            Plot(
                draw=lambda: _lines(draw, inspection.names),
                caption="Norm of the loss's gradient at the logits of read, write and mix, over all tokens. The first "
                "mix acts on equal streams, and the last may feed a mean, so these two may have no gradient.",
            ),
        ],
    )


def _numbers(inspection: Inspection) -> Section:
    columns = [getattr(inspection, field).tolist() for field in COLUMNS.values()]
    gradients = inspection.coefficient_gradient.T.tolist()
    rows = list(zip(inspection.names, *columns, *gradients, strict=True))
    header = ("connection", *COLUMNS, *GRADIENTS)
    return Section(title="Every connection", anchor="numbers", exhibits=[Table(header=header, rows=rows)])


def _maps(matrices: Tensor, names: Sequence[str], norm: Normalize, heat: str = HEAT) -> Figure:
    """Draw a small heat map for each connection."""
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


def _over_depth_map(coefficients: Tensor, names: Sequence[str], norm: Normalize) -> Figure:
    """Draw (depth, d) as one heat map: a row for each stream, a column for each connection."""
    figure = new_figure(WIDTH, 1.2 + 0.22 * coefficients.shape[-1])
    axes = figure.subplots()
    image = axes.pcolormesh(coefficients.T.numpy(), cmap=HEAT, norm=norm)
    axes.invert_yaxis()
    streams = range(coefficients.shape[-1])
    axes.set_yticks([stream + 0.5 for stream in streams], [str(stream) for stream in streams])
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
    """Label the x axis with at most a dozen names, so that they are legible."""
    step = math.ceil(len(names) / 12)
    places = range(0, len(names), step)
    axes.set_xticks([place + offset for place in places], [names[place] for place in places], rotation=60, ha="right")
    axes.tick_params(axis="x", labelsize=7)


def _from_zero(coefficients: Tensor) -> Normalize:
    return Normalize(0, max(coefficients.max().item(), 1e-6))


def _excerpt(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"
