"""How do the judge's tables look in a terminal and in LaTeX? In HTML and Markdown they are a `judge_page`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.table import Table as RichTable
from rich.text import Text

from gomhc.lab.judge.judgement import Judgement
from gomhc.lab.judge.tables import Cell, Table, all_tables

RICH = {"": "", "maximum": "bold", "near": "underline"}
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


def latex(judgement: Judgement) -> str:
    """All tables, for a document that uses booktabs."""
    return "\n".join(
        _latex_table(table, f"tab:judge-{table.name}-{number}")
        for number, table in enumerate(all_tables(judgement), start=1)
    )


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
