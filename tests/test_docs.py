"""The site's code runs, its pages cover the registry, and its links and docstrings are sound."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from code_blocks import code_blocks
from site_modules import site_module

import gomhc
from gomhc.birkhoff.registry import named_settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))}
WITH_CODE = [name for name, text in PAGES.items() if code_blocks(text)]


mixing_pages = site_module("mixing_pages")


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_blocks_of_a_page_run_one_after_the_other(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GOMHC_CACHE", str(tmp_path))
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for block in code_blocks(PAGES[name]):
        exec(block, names)


def test_many_pages_have_code() -> None:
    assert len(WITH_CODE) >= 7


@pytest.mark.parametrize("key", gomhc.PARAMETRIZATIONS)
def test_every_mixing_has_a_page_whose_code_runs(key: str) -> None:
    page = mixing_pages.page(key)
    assert len(re.findall(r"^\$\$$", page, flags=re.MULTILINE)) == 2  # its equation
    (block,) = code_blocks(page)
    exec(block, {})


def test_a_mixing_without_notes_has_the_equation_of_its_docstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing_pages, "NOTES", tmp_path)
    assert "```text\nQ = (I - A)(I + A)^{-1},    B_ij = (1/s) ||Q_ij||_F^2\n```" in mixing_pages.page("go")


def test_the_index_links_to_every_mixing() -> None:
    index = mixing_pages.index()
    assert all(f"[`{key}`]({key}.md)" in index for key in gomhc.PARAMETRIZATIONS)


def test_the_index_has_every_name_of_the_literature() -> None:
    assert {f"`{name}`" for name in named_settings()} <= set(re.findall(r"`[\w-]+`", mixing_pages.index()))


def test_a_note_belongs_to_a_registered_mixing() -> None:
    assert {note.stem for note in (DOCS / "notes").glob("*.md")} <= set(gomhc.PARAMETRIZATIONS)


def test_counts_of_operators_are_right() -> None:
    unconstrained, go = (
        mixing_pages.Cost.of(gomhc.PARAMETRIZATIONS[key](num_streams=4)) for key in ("unconstrained", "go")
    )
    assert (unconstrained.forward, unconstrained.kept) == (0, 0)  # a view
    assert go.forward >= 1
    assert go.backward >= 1
    assert go.kept >= 28


def test_links_between_pages_lead_to_pages() -> None:
    pages = {*PAGES, "mixings/index.md", *(f"mixings/{key}.md" for key in gomhc.PARAMETRIZATIONS)}
    for name, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#:]+\.md)\)", prose):
            assert link in pages, f"{name} links to {link}"


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", PAGES["index.md"], flags=re.MULTILINE))
    assert {Path(name).stem for name in PAGES} - {"index"} <= listed


def test_the_sections_of_files_that_pages_include_are_there() -> None:
    for name, text in PAGES.items():
        for file, options in re.findall(r"```\{include\} (\S+)\n(.*?)```", text, flags=re.DOTALL):
            included = (DOCS / file).read_text(encoding="utf-8")
            for mark in re.findall(r': "(.*)"$', options, flags=re.MULTILINE):
                assert mark.replace("\\n", "\n") in included, f"{name} includes {file} from or to {mark!r}"


def test_every_part_of_the_package_is_on_the_map_and_everything_on_the_map_exists() -> None:
    mapped = set(re.findall(r"^\| `(gomhc/[\w/.]*)`", PAGES["architecture.md"], flags=re.MULTILINE))
    for path in mapped:
        assert (ROOT / path).exists(), path
    parts = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "gomhc").rglob("__init__.py")}
    assert parts <= mapped


def test_every_module_is_on_the_map() -> None:
    listed = set(re.findall(r"`([\w/]+)`", PAGES["architecture.md"]))
    whole = ("birkhoff", "cli", "experiments", "exhibits", "statistics")  # one a file, or named as a kind
    for path in (ROOT / "gomhc").rglob("*.py"):
        if path.parent.name not in whole and path.stem not in ("__init__", "__main__", "recipes"):
            assert path.stem in listed, path


def test_docstrings_become_restructured_text() -> None:
    lines = [
        "Sum of squares.",
        "",
        "    B_ij = |Q_ij|**2",
        "",
        "Args:",
        "    x: (*batch, c), see `*x`",
        "",
        "Example::",
        "",
        "    >>> f(*x)",
    ]
    converted = site_module("docstrings").converted(lines)
    assert converted[2:5] == ["::", "", "    B_ij = |Q_ij|**2"]
    assert r"    x: (\*batch, c), see `*x`" in converted
    assert converted[-1] == "    >>> f(*x)"


def test_broken_links_and_things_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"></p><a href="b.html#there">b</a> <a href="#here">a</a>')
    (tmp_path / "b.html").write_text('<a href="c.html"></a><script src="https://example.org/x.js"></script>')
    problems = site_module("check_links").problems(tmp_path)
    assert [problem.split()[0] for problem in problems] == ["a.html", "b.html", "b.html"]
    assert "no such anchor" in problems[0]
    assert "not there" in problems[1]
    assert "from elsewhere" in problems[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_of_streams_is_the_one_that_the_code_draws(theme: str) -> None:
    drawn = site_module("streams_figure").figure(theme)
    assert (DOCS / "images" / f"streams-{theme}.svg").read_text(encoding="utf-8") == drawn


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Slow, as `make test` builds it already."""
    pytest.importorskip("furo", reason="needs gomhc[docs]")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        "html",
        "--fail-on-warning",
        "--nitpicky",
        "--quiet",
        DOCS,
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert site_module("check_links").problems(tmp_path) == []
