"""A directive that shows the page of `gomhc reproduce` on the site, if `make reproduce` has written it."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

PAGE = Path(__file__).parent.parent / "reproduction" / "report.html"
MISSING = "This copy of the site was built without the page. Run `make reproduce`, then `make docs`, to have it here."


class Reproduction(SphinxDirective):
    """The page in a frame and a link to it, or how to get it."""

    def run(self) -> list[nodes.Node]:
        """Link to the copy that html_extra_path makes."""
        if not PAGE.exists():
            return self.parse_text_to_nodes(MISSING)
        html = (
            f'<p><a href="{PAGE.name}">Open the whole page</a>, as <code>make reproduce</code> wrote it.</p>'
            f'<iframe class="report" src="{PAGE.name}" title="Verdicts on the paper\'s claims" loading="lazy"></iframe>'
        )
        return [nodes.raw("", html, format="html")]
