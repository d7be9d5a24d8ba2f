"""A page is one file that reads well wherever it is opened."""

from __future__ import annotations

import re

import pytest
from browser import assert_sound, needs_chromium, open_page

from gomhc.birkhoff.registry import as_mixing, named_settings
from gomhc.lab.exhibits.exhibit import Badge, Card, Cards, Link, Plot, Table, Tally, Text, Value
from gomhc.lab.exhibits.style import INK, LOOKS, line, new_figure
from gomhc.lab.report.page import Page, Section, number, svg


def draw():
    figure = new_figure()
    axes = figure.subplots()
    axes.semilogy([1, 2, 3], [1, 10, 100], **line("go-s2"))
    axes.set_xlabel("epochs")
    axes.legend()
    return figure


def a_page(text="plain"):
    table = Table(
        header=("verdict", "what", "value"),
        rows=[
            (Badge("holds", "good"), Link("to the curve", "curve"), 1234567),
            ("", text, 0.125),
            (None, text, [Link("a", "curve")]),
            (Value("plain"), Value(text, "bold"), Value("6.5 ± 0.1", "underlined")),
        ],
        row_anchors=("one", "two", "three", "four"),
        title=text,
        caption=text,
        wordy=True,
    )
    tally = Tally(counts=[(Badge("holds", "good"), 3), (Badge("does not hold", "bad"), 0)], caption=text)
    card = Card(number=text, text=text, badge=Badge("holds", "good"), link=Link("to it", "curve"))
    plotted = Card(
        number="4×", text=text, badge=Badge("holds"), link=Link("it", "curve"), plot=Plot(draw=draw, caption="")
    )
    return Page(
        title="A page",
        found=["What was found: " + text],
        opening=[tally, Cards(cards=[card, plotted], title=text)],
        lead=["How it was found: " + text],
        sections=[
            Section(title="Table", anchor="table", exhibits=[table, Text(text="Once upon a time\n<b>there</b>")]),
            Section(title="Curve", anchor="curve", aside=text, exhibits=[Plot(draw=draw, caption=text)] * 2),
        ],
    )  # fmt: skip


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (500, True)])  # headless Chromium has no narrower window
def test_page_is_sound_in_a_browser(tmp_path, width, dark):
    seen = open_page(a_page().html(), tmp_path, width=width, dark=dark)
    assert_sound(seen)
    assert len(seen["plots"]) == 3
    assert seen["overflow"] <= 0
    brightness = [sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("background", "ink")]
    assert brightness[0] < brightness[1] if dark else brightness[0] > brightness[1]


@needs_chromium
def test_probe_sees_what_is_wrong(tmp_path):
    """A dead link, a picture from elsewhere, a script that fails: else the test above could not fail."""
    wrong = (
        '<a href="#nowhere">x</a><img src="https://example.org/picture.png"><script>throw Error("oh")</script></main>'
    )
    seen = open_page(a_page().html().replace("</main>", wrong), tmp_path)
    assert seen["broken"] == ["#nowhere"]
    assert any("example.org" in uri for uri in seen["refused"])
    assert any("oh" in line for line in seen["console"])


def test_page_opens_with_what_was_found():
    for page in (a_page().html(), a_page().markdown()):
        places = [page.index(text) for text in ("What was found", "4×", "How it was found", "to the curve")]
        assert places == sorted(places)


def test_bar_has_a_part_for_each_count_and_says_them_in_words():
    html = a_page().html()
    assert '<span class="good" style="flex: 3"></span>' in html
    assert 'style="flex: 0"' not in html
    assert 'role="img" aria-label="3 holds, 0 does not hold"' in html


def test_filter_has_a_button_for_each_badge_and_none_where_there_is_no_choice():
    def page(*tones):
        rows = [(Badge(f"is {tone}", tone), tone) for tone in tones]
        table = Table(header=("verdict", "what"), rows=rows, filtered=True)
        return Page(title="", sections=[Section(title="s", anchor="s", exhibits=[table])]).html()

    html = page("bad", "good", "bad")
    assert re.findall(r'<label for="s-show-(\w+)">([^<]+)</label>', html) == [
        ("all", "all (3)"), ("good", "is good (1)"), ("bad", "is bad (2)")
    ]  # fmt: skip
    assert html.count(" checked>") == 1
    assert "<label" not in page("bad", "bad")
    assert "<script" not in html


def test_style_needs_no_other_file_and_prints_in_light_colours():
    html = a_page().html()
    assert "@import" not in html
    assert "url(http" not in html
    assert re.search(r"@media print \{ body[^}]*color-scheme: light", html)


def test_text_from_outside_cannot_become_markup():
    html = a_page(text="<script>alert(1)</script>").html()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_figures_take_the_ink_of_the_page_and_have_ids_of_their_own():
    first, second = svg(draw, "first"), svg(draw, "second")
    assert "currentColor" in first
    assert INK not in first
    assert not set(re.findall(r'id="([^"]+)"', first)) & set(re.findall(r'id="([^"]+)"', second))


def test_the_same_figure_is_drawn_the_same():
    assert svg(draw, "figure") == svg(draw, "figure")


def test_markdown_has_the_same_sections_tables_and_figures():
    text = a_page(text="a | b").markdown()
    assert "## Curve" in text
    assert r"a \| b" in text
    assert text.count("data:image/png;base64,") == 2
    assert "**3** holds; **0** does not hold" in text
    assert r"- **4×** a \| b [it](#curve)" in text
    assert '| <a id="one"></a>**holds** | [to the curve](#curve) | 1,234,567 |' in text
    assert r"plain | **a \| b** | <u>6.5 ± 0.1</u> |" in text
    assert "### a \\| b\n\n| verdict |" in text


def test_values_are_emphasized_and_kept_on_one_line():
    html = a_page(text="<best>").html()
    assert '<td class="value said" data-label="verdict">plain</td>' in html
    assert "<strong>&lt;best&gt;</strong>" in html
    assert "<u>6.5 ± 0.1</u>" in html
    assert "<h3>&lt;best&gt;</h3>" in html
    assert re.search(r"td\.value [^}]*white-space: nowrap", html)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3, "3"), (12345.0, "12,345"), (0.123456, "0.1235"), (float("inf"), "inf"), (float("nan"), "nan")],
)
def test_numbers_are_short(value, shown):
    assert number(value) == shown


def test_every_method_has_a_colour_of_its_own():
    names = [name for name in named_settings() if "square" not in name] + ["transportation", "identity"]
    colours = [LOOKS[name].color for name in names]
    assert len(set(colours)) == len(colours)


def test_every_look_is_that_of_a_mixing():
    for name in LOOKS.keys() - {"none", "go-softmax"}:
        assert as_mixing(name)
