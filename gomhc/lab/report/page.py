"""A report as one self-contained page, in HTML or Markdown, light and dark, for wide screens and phones.

A page opens with what was found, in sentences and exhibits; then come a lead, which says how, and sections. A section
is text, links and exhibits (see `gomhc.lab.exhibits.exhibit`). Nothing on the page is loaded from elsewhere and there
are no scripts: its own policy forbids both. Figures are inline SVG whose ink is the page's text colour. The
documentation site shares look.css with these pages.
"""

from __future__ import annotations

import base64
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from gomhc.lab.exhibits.exhibit import Badge, Cards, Cell, Exhibit, Link, Plot, Table, Tally, Text, Value
from gomhc.lab.exhibits.style import INK, RC
from gomhc.lab.workers import in_processes

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)
_LINK = re.compile(r"^#|url\(#")
"""The prefix of a reference to another element in an attribute."""
TEMPLATES = Path(__file__).parent / "templates"
TONES = ("good", "fair", "bad", "none")
"""Tones of badges, in the order in which they are listed."""
EMPHASIS_IN_MARKDOWN = {"": "{}", "bold": "**{}**", "underlined": "<u>{}</u>"}  # Markdown itself underlines nothing


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, paragraphs (plain text) and what is shown under them; `aside` stands beside, on wide screens."""

    title: str
    anchor: str
    paragraphs: Sequence[str] = ()
    aside: str = ""
    aside_title: str = "The paper"
    exhibits: Sequence[Exhibit] = ()
    links: Sequence[Link] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that the reader sees."""

    title: str
    found: Sequence[str] = ()
    """Sentences that open the page: what was found."""
    opening: Sequence[Exhibit] = ()
    """What is shown right below them."""
    lead: Sequence[str] = ()
    """How it was found."""
    sections: Sequence[Section] = field(default_factory=tuple)

    def html(self, jobs: int = 1) -> str:
        """One file, its figures drawn in this many processes."""
        plots = {name: plot.draw for anchor, exhibits in self._groups() for name, plot in _plots(anchor, exhibits)}
        drawn = in_processes(svg, ((draw, name) for name, draw in plots.items()), jobs, in_order=True)
        pictures = {name: Markup(picture) for name, picture in zip(plots, drawn, strict=True)}
        return _TEMPLATE.render(page=self, pictures=pictures, style=_STYLE, kind=_kind, number=number, filters=_filters)

    def _groups(self) -> Iterator[tuple[str, Sequence[Exhibit]]]:
        """Exhibits, with the anchor that their names start with."""
        yield "opening", self.opening
        for section in self.sections:
            yield section.anchor, section.exhibits

    def markdown(self) -> str:
        """The page in Markdown, with figures as images inside the text."""
        lines = [f"# {_md(self.title)}", "", *_paragraphs(self.found)]
        for number, exhibit in enumerate(self.opening, start=1):
            lines += [_show_markdown(exhibit, f"opening-{number}"), ""]
        lines += _paragraphs(self.lead)
        for section in self.sections:
            lines += [
                f'<a id="{section.anchor}"></a>',
                "",
                f"## {_md(section.title)}",
                "",
                *_paragraphs(section.paragraphs),
            ]
            if section.aside:
                lines += [f"> **{_md(section.aside_title)}.** {_md(section.aside)}", ""]
            if section.links:
                lines += [", ".join(_md_cell(link) for link in section.links), ""]
            for number, exhibit in enumerate(section.exhibits, start=1):
                lines += [_show_markdown(exhibit, f"{section.anchor}-{number}"), ""]
        return "\n".join(lines)


def number(value: float) -> str:
    """Whole numbers whole, others with four digits."""
    return f"{int(value):,}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


def svg(draw: Callable[[], Figure], name: str) -> str:
    """The drawing as an SVG element whose ids start with `name`, and whose ink is the text colour around it."""
    with matplotlib.rc_context({**RC, "svg.hashsalt": name}):
        buffer = io.BytesIO()
        draw().savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    image = ElementTree.fromstring(buffer.getvalue())
    width = float(image.attrib.pop("width").removesuffix("pt"))
    image.set("style", f"--natural-width: {width:.0f}pt")  # the page says how wide a figure is
    del image.attrib["height"]
    for metadata in image.findall(f"{{{SVG}}}metadata"):
        image.remove(metadata)
    for element in image.iter():
        element.text = element.text and element.text.replace(INK, "currentColor")
        for attribute, value in element.attrib.items():
            own = f"{name}-{value}" if attribute == "id" else _LINK.sub(rf"\g<0>{name}-", value)
            element.set(attribute, own.replace(INK, "currentColor"))
    return ElementTree.tostring(image, encoding="unicode")


def _kind(value: Exhibit | Cell) -> str:
    """The kind of an exhibit or cell, by which the template shows it."""
    if isinstance(value, bool | str):
        return "text"
    if isinstance(value, int | float):
        return "number"
    return "links" if isinstance(value, Sequence) else type(value).__name__.lower()


def _plots(anchor: str, exhibits: Sequence[Exhibit]) -> Iterator[tuple[str, Plot]]:
    """Every plot with its name, those on cards too."""
    for number, exhibit in enumerate(exhibits, start=1):
        if isinstance(exhibit, Plot):
            yield f"{anchor}-{number}", exhibit
        elif isinstance(exhibit, Cards):
            for place, card in enumerate(exhibit.cards, start=1):
                if card.plot is not None:
                    yield f"{anchor}-{number}-{place}", card.plot


def _filters(section: Section) -> list[tuple[str, str, int]]:
    """The buttons above filtered tables: tone, text and number of rows; the first shows all. None without a choice."""
    tables = [exhibit for exhibit in section.exhibits if isinstance(exhibit, Table) and exhibit.filtered]
    badges = [row[0] for table in tables for row in table.rows if isinstance(row[0], Badge)]
    text_of = {badge.tone: badge.text for badge in badges}
    if len(text_of) < 2:
        return []
    counts = Counter(badge.tone for badge in badges)
    return [("all", "all", len(badges)), *((tone, text_of[tone], counts[tone]) for tone in TONES if tone in text_of)]


def _show_markdown(exhibit: Exhibit, name: str) -> str:
    if isinstance(exhibit, Plot):
        with matplotlib.rc_context({**RC, "svg.hashsalt": name}):
            buffer = io.BytesIO()
            exhibit.draw().savefig(buffer, format="png", dpi=110, facecolor="white", bbox_inches="tight")
        image = base64.b64encode(buffer.getvalue()).decode()
        return f"![{_md(exhibit.caption)}](data:image/png;base64,{image})\n\n{_md(exhibit.caption)}"
    if isinstance(exhibit, Text):
        return f"```\n{exhibit.text}\n```\n\n{_md(exhibit.caption)}"
    if isinstance(exhibit, Tally):
        return "; ".join(f"**{count}** {_md(badge.text)}" for badge, count in exhibit.counts)
    if isinstance(exhibit, Cards):
        title = [f"## {_md(exhibit.title)}", ""] if exhibit.title else []
        cards = [f"- **{_md(card.number)}** {_md(card.text)} {_md_cell(card.link)}" for card in exhibit.cards]
        return "\n".join([*title, *cards])
    anchors = [f'<a id="{anchor}"></a>' for anchor in exhibit.row_anchors] or [""] * len(exhibit.rows)
    rows = [f"| {anchor}{' | '.join(map(_md_cell, row))} |" for row, anchor in zip(exhibit.rows, anchors, strict=True)]
    title = [f"### {_md(exhibit.title)}", ""] if exhibit.title else []
    header = f"| {' | '.join(map(_md, exhibit.header))} |\n|{'---|' * len(exhibit.header)}"
    return "\n".join([*title, header, *rows, "", _md(exhibit.caption)])


def _md_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | str):
        return _md(str(cell))
    if isinstance(cell, int | float):
        return number(cell)
    if isinstance(cell, Badge):
        return f"**{_md(cell.text)}**"
    if isinstance(cell, Value):
        return EMPHASIS_IN_MARKDOWN[cell.emphasis].format(_md(cell.text))
    links = [cell] if isinstance(cell, Link) else cell
    return ", ".join(f"[{_md(link.text)}](#{link.anchor})" for link in links)


def _md(text: str) -> str:
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", " ".join(text.split()))


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in (_md(text), "")]


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("gomhc.lab.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATE: jinja2.Template = _ENVIRONMENT.get_template("page.html")
_STYLE = Markup("".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("look.css", "page.css")))


def anchor(*parts: Any) -> str:
    """An id that HTML and Markdown allow, from a name."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, parts)).lower()).strip("-")
