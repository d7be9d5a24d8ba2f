"""Configuration of the documentation site: Sphinx with MyST and furo. `make docs` builds it.

Pages of mixings are written from the registry before the build, figures are drawn during it, equations become MathML,
and nothing on the site is loaded from another host.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import differences  # noqa: E402
import docstrings  # noqa: E402
import mathml  # noqa: E402
import mixing_pages  # noqa: E402
import pictures  # noqa: E402
import reproduction_page  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import gomhc  # noqa: E402

project = "gomhc"
author = "The gomhc developers"
copyright = f"2026, {author}"
version = release = gomhc.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "notes"]
language = "en"
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!gomhc\.).*"),  # names of other libraries: their pages are not at hand offline
    ("py:class", r"gomhc\..*\.(Class|Model|Module)"),  # type variables
]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_custom_sections = ["Shape"]
napoleon_numpy_docstring = False
python_display_short_literal_types = True
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "gomhc"
html_static_path = ["_static", "../gomhc/lab/report/templates/look.css"]
html_css_files = ["look.css", "site.css"]  # the look of the pages that commands write, and what the site adds
html_copy_source = False
html_show_sphinx = False
html_extra_path = [str(reproduction_page.PAGE)] if reproduction_page.PAGE.exists() else []
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "friendly", "github-dark"


def setup(app: Sphinx) -> None:
    """Connect what this site has beyond Sphinx."""
    app.add_html_math_renderer("mathml", (mathml.visit_inline, None), (mathml.visit_block, None))
    app.add_directive("drawing", pictures.Drawing)
    app.add_directive("difference", differences.Difference)
    app.add_directive("reproduction", reproduction_page.Reproduction)
    app.connect("autodoc-process-docstring", docstrings.to_restructured_text, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", docstrings.with_colons, priority=900)  # behind it
    mixing_pages.write(FOLDER / "mixings")
