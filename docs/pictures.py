"""Figures that are drawn while the site is built, and the directive that shows them.

Each function here draws one figure. A page asks for it by name:

    ```{drawing} reach go
    The caption.
    ```
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import torch
from docutils import nodes
from docutils.parsers.rst import Directive
from matplotlib.ticker import LogLocator
from mixing_table import rows_of, short, times_relative_to_go

import gomhc
from gomhc.birkhoff.karpelevic import karpelevic_boundary
from gomhc.birkhoff.measures import marginal_error
from gomhc.birkhoff.spectral_reach import spectral_reach
from gomhc.lab.bench.operations import map_operations
from gomhc.lab.bench.projection import STREAMS
from gomhc.lab.comparison import study
from gomhc.lab.comparison.comparison_exhibits import curves_plot, differences_plot
from gomhc.lab.exhibits.spectrum_plots import outline
from gomhc.lab.exhibits.style import INK, SPARE, line, look, new_figure
from gomhc.lab.report.page import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_TARGETS = 256
NUM_STEPS = 60
"""Points that a search heads for in the picture of a mixing's reach, and its steps: a second for most mixings."""


def reach(key: str) -> Figure:
    """Eigenvalues that matrices of a mixing can have at d = 4, and some of its matrices."""
    mixing = gomhc.PARAMETRIZATIONS[key](num_streams=4)
    generator = torch.Generator().manual_seed(0)
    reached = spectral_reach(mixing, NUM_TARGETS, generator, num_steps=NUM_STEPS, learning_rate=0.15)
    scales = (0.0, 1.0, 3.0, 10.0)
    draws = [
        mixing.initial_logits(generator),
        *(s * torch.randn(mixing.num_logits, generator=generator) for s in scales[1:]),
    ]
    figure = new_figure(7.2, 2.7)
    grid = figure.add_gridspec(2, 4, width_ratios=(2.6, 0.25, 1, 1))
    disc = figure.add_subplot(grid[:, 0])
    outline(disc, 3, 4)
    boundary = karpelevic_boundary(4)
    for side in (1, -1):
        disc.plot(boundary.real, side * boundary.imag, color=INK, linewidth=0.6, linestyle=(0, (2, 2)))
    color = look(_name(key)).color
    inside = reached.flatten()
    inside = inside[inside.abs() < 1.05]
    disc.plot(inside.real, inside.imag, ".", color=color, markersize=2.5, alpha=0.7)
    disc.set_title("eigenvalues within reach")
    for index, (logits, scale) in enumerate(zip(draws, scales, strict=True)):
        axes = figure.add_subplot(grid[index // 2, 2 + index % 2])
        matrix = mixing(logits).detach()
        signed = bool((matrix < -1e-6).any())
        axes.imshow(matrix, cmap="RdBu" if signed else "Blues", vmin=-1 if signed else 0, vmax=1)
        axes.set_title("at the start" if index == 0 else f"logits of scale {scale:g}", fontsize=8)
        axes.set_axis_off()
    return figure


def marginal_errors() -> Figure:
    """The worst row or column sum of float32 matrices over the scale of the logits, d = 4."""
    figure = new_figure(6.4, 5.0)
    axes = figure.subplots()
    scales = torch.logspace(-1, 3, 13)
    for key, cls in gomhc.PARAMETRIZATIONS.items():
        mixing = cls(num_streams=4)
        if not (mixing.promise.unit_rows and mixing.promise.unit_columns) or mixing.num_logits == 0:
            continue
        logits = torch.randn(1024, mixing.num_logits, generator=torch.Generator().manual_seed(0))
        errors = [marginal_error(mixing(scale * logits).double()).max().item() for scale in scales]
        style = {**line(_name(key)), "linestyle": "-" if mixing.promise.to_rounding else "--"}
        axes.loglog(scales, [max(error, 1e-9) for error in errors], **style)
    axes.axhline(torch.finfo(torch.float32).eps, color=INK, linewidth=0.6)
    axes.text(1.0, 1.2e-7, " eps", fontsize=8, va="center", transform=axes.get_yaxis_transform())
    axes.set(xlabel="standard deviation of the logits", ylabel="worst |row or column sum − 1|", ylim=(1e-8, 10))
    figure.legend(ncols=3, fontsize=8, loc="outside lower center")
    return figure


def depth_gain() -> Figure:
    """Gain of a product of l matrices over l: what a mixing does to a signal in a deep network."""
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    generator = torch.Generator().manual_seed(0)
    for key in ("unconstrained", "sinkhorn", "go"):
        mixing = gomhc.PARAMETRIZATIONS[key](num_streams=4)
        start = mixing.initial_logits(generator)
        scale = 0.1 if key == "unconstrained" else 3.0
        steered = start + scale * torch.randn(64, 64, mixing.num_logits, generator=generator)
        product = torch.eye(4).double()
        gains = []
        for matrices in mixing(steered).double():
            product = matrices @ product
            gains.append(product.abs().sum(-1).amax().item())
        axes.semilogy(range(1, 65), gains, **line(_name(key)))
    axes.set(xlabel="layers", ylabel="largest gain of a signal")
    axes.legend()
    return figure


def times(benchmark: str) -> Figure:
    """Times in benchmarks/NAME.json at d = 4, as multiples of go's."""
    ratios = times_relative_to_go(benchmark)
    names = sorted(ratios, key=lambda name: -ratios[name])
    figure = new_figure(6.4, 0.6 + 0.2 * len(names))
    axes = figure.subplots()
    color = {name: look(_name("go")).color if name == "go" else SPARE[0] for name in names}
    bars = axes.barh(names, [ratios[name] for name in names], color=[color[name] for name in names], height=0.7)
    axes.bar_label(bars, [f" {short(ratios[name])}" for name in names], fontsize=7)
    axes.set_xscale("log", subs=())
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.1)
    axes.set(xlabel="time, as a multiple of go's")
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(y=0.01)
    return figure


def growth() -> Figure:
    """Time of a multiply-add of each map over the number of streams, as the benchmark measured it."""
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for key in ("go", "go-unitary", "sinkhorn", "sinkhorn-v4", "orthogonal", "spectral-sphere", "projection"):
        rows = [row for row in rows_of("growth") if row["method"] == key and row["sizes"]["s"] == 2]
        streams = [row["sizes"]["d"] for row in rows]
        picoseconds = [
            1e9 * row["milliseconds"] / row["sizes"]["matrices"] / map_operations(key, row["sizes"]["d"], 2)
            for row in rows
        ]
        axes.loglog(streams, picoseconds, **line(_name(key)))
    axes.set_xticks(STREAMS, labels=[str(d) for d in STREAMS])
    axes.set(xlabel="streams", ylabel="time of a multiply-add, ps")
    figure.legend(ncols=3, fontsize=8, loc="outside lower center")
    return figure


def study_differences(stage: str) -> Figure:
    """Differences from the plain network in a stage of the study of streams, with intervals and seeds."""
    return differences_plot(study.stages(study.STREAMS)[stage]).draw()


def study_curves(stage: str) -> Figure:
    """Validation losses over steps in a stage of the study of streams, and differences from the plain network."""
    return curves_plot(study.stages(study.STREAMS)[stage]).draw()


def _name(key: str) -> str:
    """The name under which figures know a mixing: the literature's for its default setting, else its key."""
    known = {"go": "go-s2", "go-unitary": "go-unitary-s2", "average": "average:num_terms=2"}
    names = [name for name, options in gomhc.PARAMETRIZATIONS[key].names.items() if not options]
    return known.get(key) or next(iter(names), key)


DRAWINGS: dict[str, Callable[..., Figure]] = {
    function.__name__: function
    for function in (reach, marginal_errors, depth_gain, times, growth, study_differences, study_curves)
}


class Drawing(Directive):
    """A figure drawn by code, whose ink is the colour of the text, with a caption."""

    required_arguments = 1
    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it, as SVG inside the page."""
        name, *arguments = self.arguments
        draw = DRAWINGS[name]
        caption = " ".join(self.content)
        picture = svg(lambda: draw(*arguments), "-".join(self.arguments))
        label = escape(caption or inspect.getdoc(draw) or name)
        html = (
            f'<figure class="drawing"><div role="img" aria-label="{label}">{picture}</div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
        return [nodes.raw("", html, format="html")]
