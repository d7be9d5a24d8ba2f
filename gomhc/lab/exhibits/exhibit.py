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
    """A cell of a table that stands out: `tone` is good, fair, bad or none."""

    text: str
    tone: str = "none"


Emphasis = Literal["", "bold", "underlined"]


@dataclass(frozen=True)
class Value:
    """A cell of a table with a number as it is to be read, 6.63 ± 0.12, say: on one line, with emphasis or not."""

    text: str
    emphasis: Emphasis = ""


Cell = str | int | float | Link | Badge | Value | Sequence[Link] | None


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure, drawn when the page is written: `draw` is called under the page's style."""

    draw: Callable[[], Figure]
    caption: str
    """A description of the figure, which screen readers read out too."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a header; numbers are right-aligned and shown with four digits."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    """Above it, where a section has several."""
    caption: str = ""
    row_anchors: Sequence[str] = ()
    """Anchors of the rows, if links lead to single ones."""
    wordy: bool = False
    """Set where cells hold sentences: a phone then shows each row as a card."""
    filtered: bool = False
    """Set where each row starts with a badge: the page then has buttons that show the rows of one badge."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """Preformatted text, as of a story or a log, with a caption."""

    text: str
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """A bar with a part for each badge, as long as its count."""

    counts: Sequence[tuple[Badge, int]]
    caption: str = ""
    """A description of the bar, which screen readers read out too."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A finding that a reader should know: its number, one sentence, what was decided, and a figure."""

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
