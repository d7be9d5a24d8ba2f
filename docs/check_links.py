"""Follow every link inside the built site: it must lead to a file and an anchor. Nothing may be loaded from elsewhere.

python docs/check_links.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
"""Elements that make a browser load something, and the attribute that says what."""


class Page(HTMLParser):
    """The ids of a page, where it links to, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element says."""
        values = {name: value for name, value in attrs if value is not None}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values:
            self.loaded.append(values[LOADING[tag]])


def problems(folder: Path) -> list[str]:
    """A line for each link that leads nowhere, and for each thing that is loaded from another host."""
    pages = {file.resolve(): Page(file) for file in sorted(folder.rglob("*.html"))}
    found = [] if pages else [f"{folder} has no pages; build them with: make docs"]
    for file, page in pages.items():
        place = file.relative_to(folder.resolve())
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{place} loads {link} from elsewhere")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists():
                found.append(f"{place} links to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{place} links to {link}, which has no such anchor")
    return found


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(f"{len(found)} problems with links" if found else 0)
