"""What a page can show: plots, tables and text, as values that `gomhc.lab.report` writes in HTML and Markdown.

Nothing here needs matplotlib: a plot is a function that draws when the page is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Link:
    """A cell of a table, or an item of a list, that leads to a section of the page by its anchor."""

    text: str
    anchor: str


@dataclass(frozen=True)
class Badge:
    """A coloured label in a cell of a table: `tone` is good, fair, bad or none."""

    text: str
    tone: str = "none"


Emphasis = Literal["", "bold", "underlined"]


@dataclass(frozen=True)
class Value:
    """A cell of a table with formatted text, such as 6.63 ± 0.12, on one line and optionally emphasized."""

    text: str
    emphasis: Emphasis = ""


Cell = str | int | float | Link | Badge | Value | Sequence[Link] | None


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure, drawn when the page is written: `draw` is called under the page's style."""

    draw: Callable[[], Figure]
    caption: str
    """Description of the figure, also for screen readers."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a header; numbers are right-aligned and shown with four digits."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    """Title above the table, for sections with several tables."""
    caption: str = ""
    row_anchors: Sequence[str] = ()
    """Anchors of the rows, for links to single rows."""
    wordy: bool = False
    """Set this if cells hold sentences: a phone then shows each row as a card."""
    filtered: bool = False
    """Set this if each row starts with a badge: the page then has buttons to show only the rows of one badge."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """Preformatted text, such as a story or a log, with a caption."""

    text: str
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """A bar with a part for each badge, whose length is its count."""

    counts: Sequence[tuple[Badge, int]]
    caption: str = ""
    """Description of the bar, also for screen readers."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A main finding: its number, one sentence, the verdict, and a figure."""

    number: str
    text: str
    badge: Badge
    link: Link
    plot: Plot | None = None


@dataclass(frozen=True, kw_only=True)
class Cards:
    """Cards beside each other, or below each other on a phone."""

    cards: Sequence[Card]
    title: str = ""
    caption: str = ""


Exhibit = Plot | Table | Text | Tally | Cards


def listed(texts: Sequence[str]) -> str:
    """Return the texts as a list in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
