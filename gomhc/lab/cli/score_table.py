"""The terminal tables of `gomhc judge`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from gomhc.lab.judge.score_tables import ScoreTable

STYLES = {"": "", "maximum": "bold", "near": "underline"}


def terminal_table(table: ScoreTable) -> Table:
    """Return the table for rich, with the maximum of a column in bold and cells near it underlined."""
    # Names of models and judges come from outside: as `Text`, they are not read as markup.
    terminal = Table(title=Text(table.title), caption=Text(table.caption), caption_justify="left")
    for name in table.header:
        terminal.add_column(Text(name))
    for section in table.sections:
        for row in section:
            terminal.add_row(*(Text(cell.text, style=STYLES[cell.mark]) for cell in row))
        terminal.add_section()
    return terminal
