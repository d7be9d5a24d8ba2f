"""The figure of README: streams, read, branch, write and mix, for light and dark pages.

python docs/streams_figure.py     # writes docs/images/streams-light.svg and streams-dark.svg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

import gomhc

IMAGES = Path(__file__).parent / "images"
STREAMS = ("#0077BB", "#009988", "#EE7733", "#CC3311")
COLOURS = {
    "light": {"ink": "#1b1f24", "faint": "#59636e", "line": "#d8dde3", "panel": "#f5f7f9", "paper": "#ffffff"},
    "dark": {"ink": "#e4e8ec", "faint": "#9aa5b1", "line": "#4a535d", "panel": "#1c2127", "paper": "#14171b"},
}
HEIGHTS = (60, 100, 140, 180)
READ, WRITE, BRANCH = (170, 262), (590, 262), (300, 236, 160, 52)
MIX, CELL = (316, 56), 32
TITLE = (
    "A hyper-connection: the branch reads a weighted sum of four streams, a doubly stochastic matrix mixes them, and "
    "the branch's output is written to each."
)


def figure(theme: str) -> str:
    """The figure as SVG."""
    c = COLOURS[theme]
    body = "\n".join([*streams(c), *mix(c), *read(c), *write(c), *branch(c), *words(c)])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 348" role="img" aria-label="{TITLE}">
<title>{TITLE}</title>
<style>text {{ font-family: system-ui, -apple-system, "Segoe UI", sans-serif; font-size: 17px; fill: {c["ink"]} }}
.faint {{ fill: {c["faint"]}; font-size: 15px }} .middle {{ text-anchor: middle }} .end {{ text-anchor: end }}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path
d="M0 0 L8 4 L0 8 z" fill="{c["ink"]}"/></marker></defs>
{body}
</svg>
"""


def streams(c: dict[str, str]) -> Iterator[str]:
    """Lines from the left to the mix and from there to the right."""
    for number, (y, color) in enumerate(zip(HEIGHTS, STREAMS, strict=True), start=1):
        yield f'<path d="M60 {y} H{MIX[0] - 10} M{MIX[0] + 4 * CELL + 10} {y} H716" stroke="{color}" stroke-width="4"/>'
        yield f'<path d="M712 {y - 7} L726 {y} L712 {y + 7} z" fill="{color}"/>'
        yield f'<text x="48" y="{y + 5}" class="end">x<tspan dy="4" font-size="11">{number}</tspan></text>'


def mix(c: dict[str, str]) -> Iterator[str]:
    """A matrix of go-mHC: the darker a cell, the more of the stream in its column goes to the one in its row."""
    go = gomhc.Orthostochastic(num_streams=4, initial_leak=0.45)
    matrix = go(go.initial_logits(torch.Generator().manual_seed(3)))
    x, y = MIX
    side = 4 * CELL
    frame = f'x="{x - 10}" y="{y - 10}" width="{side + 20}" height="{side + 20}" rx="8"'
    yield f'<rect {frame} fill="{c["panel"]}" stroke="{c["line"]}"/>'
    for row in range(4):
        for column, color in enumerate(STREAMS):
            share = matrix[row, column].item()
            place = f'x="{x + column * CELL + 1}" y="{y + row * CELL + 1}" width="{CELL - 2}" height="{CELL - 2}"'
            yield f'<rect {place} rx="3" fill="{color}" fill-opacity="{0.06 + 0.94 * share:.2f}"/>'


def read(c: dict[str, str]) -> Iterator[str]:
    """Thin lines from each stream to one sum."""
    x, y = READ
    for height, color in zip(HEIGHTS, STREAMS, strict=True):
        curve = f"M110 {height} C150 {height} 130 {y} {x - 14} {y}"
        yield f'<path d="{curve}" fill="none" stroke="{color}" stroke-width="1.6"/>'
        yield f'<circle cx="110" cy="{height}" r="4" fill="{color}"/>'
    yield node(x, y, "Σ", c)
    yield f'<path d="M{x + 14} {y} H{BRANCH[0] - 3}" stroke="{c["ink"]}" stroke-width="2" marker-end="url(#tip)"/>'


def write(c: dict[str, str]) -> Iterator[str]:
    """Thin lines from the branch's output to a sum on each stream."""
    x, y = WRITE
    yield f'<path d="M{BRANCH[0] + BRANCH[2]} {y} H{x}" stroke="{c["ink"]}" stroke-width="2"/>'
    for height, color in zip(HEIGHTS, STREAMS, strict=True):
        curve = f"M{x} {y} C{x + 50} {y} {x + 20} {height} {x + 58} {height}"
        yield f'<path d="{curve}" fill="none" stroke="{c["ink"]}" stroke-width="1.4"/>'
        yield f'<circle cx="{x + 66}" cy="{height}" r="9" fill="{c["paper"]}" stroke="{color}" stroke-width="2"/>'
        yield f'<path d="M{x + 61} {height} h10 m-5 -5 v10" stroke="{c["ink"]}" stroke-width="1.6"/>'


def branch(c: dict[str, str]) -> Iterator[str]:
    """The network's own layer."""
    x, y, width, height = BRANCH
    frame = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
    yield f'<rect {frame} fill="{c["panel"]}" stroke="{c["ink"]}" stroke-width="1.6"/>'
    yield f'<text x="{x + width / 2}" y="{y + 22}" class="middle" font-weight="600">branch F</text>'
    yield f'<text x="{x + width / 2}" y="{y + 41}" class="middle faint">attention or MLP</text>'


def words(c: dict[str, str]) -> Iterator[str]:
    """What the parts are called."""
    yield f'<text x="{MIX[0] + 2 * CELL}" y="20" class="middle" font-weight="600">mix</text>'
    yield f'<text x="{MIX[0] + 2 * CELL}" y="40" class="middle faint">rows and columns sum to one</text>'
    yield f'<text x="{READ[0] + 2}" y="{READ[1] + 34}" class="middle" font-weight="600">read</text>'
    yield f'<text x="{WRITE[0]}" y="{WRITE[1] + 34}" class="middle" font-weight="600">write</text>'
    formula = "xᵢ  ←  Σⱼ mixᵢⱼ xⱼ  +  writeᵢ · F( Σⱼ readⱼ xⱼ )"
    yield f'<text x="380" y="332" class="middle">{formula}</text>'


def node(x: int, y: int, text: str, c: dict[str, str]) -> str:
    """A circle with a sign in it."""
    return (
        f'<circle cx="{x}" cy="{y}" r="14" fill="{c["panel"]}" stroke="{c["ink"]}" stroke-width="1.6"/>'
        f'<text x="{x}" y="{y + 5}" class="middle">{text}</text>'
    )


if __name__ == "__main__":
    for theme in COLOURS:
        (IMAGES / f"streams-{theme}.svg").write_text(figure(theme), encoding="utf-8")
