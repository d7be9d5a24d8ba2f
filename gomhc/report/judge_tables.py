"""How do the judge's tables look? In a terminal, in Markdown, in LaTeX and in HTML; one table, four writers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from rich.table import Table as RichTable
from rich.text import Text

from gomhc.judge.judgement import Judgement
from gomhc.judge.tables import Cell, Table, all_tables

RICH = {"": "", "maximum": "bold", "near": "underline"}
HTML = {"": "{}", "maximum": "<strong>{}</strong>", "near": "<u>{}</u>"}
LATEX = {"": "{}", "maximum": r"\mathbf{{{}}}", "near": r"\underline{{{}}}"}
LATEX_SPECIAL = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "--",
    "–": "--",
    "ρ": r"$\rho$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # at the start of a row it would belong to the end of the one before
    "]": "{]}",
}
STYLE = """:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }
tbody th { font-weight: normal; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody + tbody { border-top: 2px solid #8888; }
figure { margin: 0 0 2rem; }
figcaption { font-size: .88rem; opacity: .75; max-width: 46rem; margin-top: .4rem; }"""


def terminal_table(table: Table) -> RichTable:
    """For `rich`; marks are bold and underlined."""
    found = RichTable(title=Text(table.title), caption=Text(table.caption), caption_justify="left")
    for name in table.header:
        found.add_column(Text(name))
    for section in table.sections:
        for row in section:
            found.add_row(*(Text(cell.text, style=RICH[cell.mark]) for cell in row))
        found.add_section()
    return found


def markdown(judgement: Judgement) -> str:
    """All tables, under headings; underlining, which Markdown lacks, is HTML's."""
    return "\n".join(_markdown_table(table) for table in all_tables(judgement))


def latex(judgement: Judgement) -> str:
    """All tables, for a document that uses booktabs."""
    return "\n".join(
        _latex_table(table, f"tab:judge-{table.name}-{number}")
        for number, table in enumerate(all_tables(judgement), start=1)
    )


def html_section(judgement: Judgement) -> str:
    """A `<section>` with all tables, for the report or any other page."""
    tables = "\n".join(_html_table(table) for table in all_tables(judgement))
    return f'<section id="judge">\n<h2>Stories, judged</h2>\n{tables}\n</section>\n'


def html_page(judgement: Judgement) -> str:
    """The section as a page of its own."""
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    title = f"<title>Stories, judged</title>\n<style>\n{STYLE}\n</style>"
    return f'<!doctype html>\n<html lang="en">\n{head}\n{title}\n<body>\n{html_section(judgement)}</body>\n</html>\n'


def _markdown_table(table: Table) -> str:
    rows = [[_markdown_cell(cell) for cell in row] for section in table.sections for row in section]
    lines = [[_markdown_text(name) for name in table.header], ["---"] * len(table.header), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"### {_markdown_text(table.title)}\n\n{body}\n\n{_markdown_text(table.caption)}\n"


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    return f"**{text}**" if cell.mark == "maximum" else HTML[cell.mark].format(text)


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", " ".join(text.split()))


def _latex_table(table: Table, label: str) -> str:
    body = " \\midrule\n".join(_latex_rows(section) for section in table.sections)
    columns = "l" * (len(table.header) - 3) + "ccc" if table.name != "scores" else "lcccc"
    header = " & ".join(rf"\textbf{{{_latex_text(name).capitalize()}}}" for name in table.header)
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            r"\small",
            rf"\caption{{\textbf{{{_latex_text(table.title)}.}} {_latex_text(table.caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"\toprule",
            rf"{header} \\ \midrule",
            rf"{body} \bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_rows(rows: Sequence[Sequence[Cell]]) -> str:
    return "\n".join(" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in rows)


def _latex_cell(cell: Cell) -> str:
    if re.fullmatch(r"[-+\d.,±–* \[\]]*\d[-+\d.,±–* \[\]]*", cell.text):
        formula = cell.text.replace("±", r"\pm").replace("–", r"\text{--}").replace(" *", "^{*}").replace(" [", r"\ [")
        return f"${LATEX[cell.mark].format(formula)}$"
    return _latex_text(cell.text)


def _latex_text(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in " ".join(text.split()))


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    bodies = "".join(f"<tbody>{''.join(map(_html_row, section))}</tbody>" for section in table.sections)
    grid = f'<div class="scroll"><table><thead><tr>{head}</tr></thead>{bodies}</table></div>'
    return f"<h3>{escape(table.title)}</h3>\n<figure>{grid}<figcaption>{escape(table.caption)}</figcaption></figure>"


def _html_row(row: Sequence[Cell]) -> str:
    name, *values = row
    cells = "".join(f'<td class="number">{HTML[cell.mark].format(escape(cell.text))}</td>' for cell in values)
    return f'<tr><th scope="row">{escape(name.text)}</th>{cells}</tr>'
