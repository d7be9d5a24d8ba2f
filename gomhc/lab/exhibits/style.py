"""The style of all figures: one colour for each method, which the colour-blind can tell apart, on white and on black.

Colours are Paul Tol's vibrant scheme. Where lines cross, `line` gives each method a dash as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the page's own text colour: the page puts `currentColor` in its place (see `gomhc.lab.report.page`)."""


class Look(NamedTuple):
    """A method's label in a legend, and the colour and dash of its line."""

    label: str
    color: str
    dash: Any = "-"


LOOKS: dict[str, Look] = {
    "none": Look("plain residual", "#5F6B76"),
    "hc": Look("HC (unconstrained)", "#CC3311", (0, (1, 1))),
    "mhc": Look("mHC (Sinkhorn)", "#EE3377", (0, (3, 1))),
    "mhc-linear": Look("Sinkhorn, linear", "#CC6699", (0, (1, 1))),
    "sinkhorn-v4": Look("Sinkhorn of DeepSeek-V4", "#882255", (0, (5, 1, 1, 1))),
    "mhc-lite": Look("mHC-lite", "#EE7733"),
    "kromhc": Look("KromHC", "#009988", (0, (4, 1, 1, 1))),
    "transportation": Look("transportation", "#A8801C", (0, (2, 1))),
    "identity": Look("identity", "#8A8A8A", (0, (1, 1.5))),
    "mhc-proj": Look("mHC-proj (projection)", "#7A3B1E", (0, (4, 1))),
    "c-mhc": Look("C-mHC (circulant)", "#44AA99", (0, (3, 1))),
    "shc": Look("sHC (spectral sphere)", "#BB5566", (0, (5, 1.5))),
    "jpmhc": Look("JPmHC (rotation)", "#DDAA33"),
    "ohc": Look("oHC (quaternions)", "#B58900", (0, (3, 1))),
    "oshc": Look("osHC (rows alone)", "#557700", (0, (2, 1))),
    "ito-hc": Look("ITO-HC (bounded)", "#AA4499", (0, (1, 1))),
    "go-s1": Look("go-mHC, s = 1", "#33BBEE", (0, (5, 1.5))),
    "go-s2": Look("go-mHC, s = 2", "#0077BB"),
    "go-s3": Look("go-mHC, s = 3", "#6B5BD2", (0, (5, 1, 1, 1))),
    "go-unitary-s1": Look("unitary, s = 1", "#B07AA1", (0, (5, 1.5))),
    "go-unitary-s2": Look("unitary, s = 2", "#9C4F96"),
    "go-softmax": Look("go-mHC with softmax", "#A8801C", (0, (3, 1))),
    "go:rotation=cayley": Look("Cayley", "#0077BB"),
    "go:rotation=exponential": Look("exponential", "#EE7733", (0, (5, 1.5))),
    "go:rotation=householder": Look("Householder", "#009988", (0, (2, 1))),
    "go:rotation=givens": Look("Givens", "#CC3311", (0, (5, 1, 1, 1))),
    "average:num_terms=2": Look("average of 2, s = 1", "#6B5BD2"),
    "average:num_terms=3": Look("average of 3, s = 1", "#A8801C"),
}
"""Mixing, as records name it -> look. One that is not here has a look by `look`."""

SPARE = ("#8A8A8A", "#CC3311", "#A8801C", "#6B5BD2", "#009988", "#EE3377")


def look(name: str) -> Look:
    """Return the look of a method; one that is not listed is labelled by its name, which also picks its colour.

    The published code's layout of go-mHC looks as go-mHC does: no figure has both.
    """
    name = name.replace("go-square-", "go-")
    return LOOKS.get(name) or Look(name, SPARE[sum(map(ord, name)) % len(SPARE)])


def line(name: str) -> dict[str, Any]:
    """Keywords for `axes.plot`: the method's colour, dash and label."""
    label, color, dash = look(name)
    return {"color": color, "linestyle": dash, "label": label}


def new_figure(width: float = 6.4, height: float = 4.0) -> Figure:
    """An empty figure in inches; a phone shows about five of them across legibly."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 0.5, 1 and 2 instead of powers of ten; those between powers where they are few."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


RC: Any = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.grid": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.facecolor": "none",
    "legend.edgecolor": "none",
    "legend.labelcolor": INK,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "path.simplify_threshold": 0.5,
}
"""Settings under which figures are drawn and saved."""
