"""The tables of a judgement in LaTeX, for documents that use booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gomhc.lab.judge.judgement import Judgement
from gomhc.lab.judge.score_tables import ScoreCell, ScoreTable, all_tables

MARKS = {"": "{}", "maximum": r"\mathbf{{{}}}", "near": r"\underline{{{}}}"}
SPECIAL = {
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
    "[": "{[}",  # at the start of a row LaTeX would read it as an option of the \\ before it
    "]": "{]}",
}


def latex(judgement: Judgement) -> str:
    """Return all tables of a judgement."""
    return "\n".join(
        _table(table, f"tab:judge-{table.name}-{number}") for number, table in enumerate(all_tables(judgement), start=1)
    )


def _table(table: ScoreTable, label: str) -> str:
    body = " \\midrule\n".join(_rows(section) for section in table.sections)
    columns = "l" * (len(table.header) - 3) + "ccc" if table.name != "scores" else "lcccc"
    header = " & ".join(rf"\textbf{{{_text(name).capitalize()}}}" for name in table.header)
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            r"\small",
            rf"\caption{{\textbf{{{_text(table.title)}.}} {_text(table.caption)}}}",
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


def _rows(rows: Sequence[Sequence[ScoreCell]]) -> str:
    return "\n".join(" & ".join(_cell(cell) for cell in row) + r" \\" for row in rows)


def _cell(cell: ScoreCell) -> str:
    if re.fullmatch(r"[-+\d.,±–* \[\]]*\d[-+\d.,±–* \[\]]*", cell.text):
        formula = cell.text.replace("±", r"\pm").replace("–", r"\text{--}").replace(" *", "^{*}").replace(" [", r"\ [")
        return f"${MARKS[cell.mark].format(formula)}$"
    return _text(cell.text)


def _text(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in " ".join(text.split()))
