"""The terminal tables of `gomhc compare`."""

from __future__ import annotations

from rich.table import Table

from gomhc.lab.comparison import comparison_exhibits
from gomhc.lab.comparison.result import Result
from gomhc.lab.exhibits import exhibit


def comparison_table(result: Result) -> Table:
    """Return losses, paired differences and time, a row a method."""
    shown = comparison_exhibits.loss_table(result)
    table = Table(caption=shown.caption)
    for index, heading in enumerate(shown.header):
        table.add_column(heading, justify="right" if index else "left", min_width=12, no_wrap=index > 0)
    for row in shown.rows:
        table.add_row(*(_text(cell) for cell in row))
    return table


def _text(cell: exhibit.Cell) -> str:
    if isinstance(cell, exhibit.Value):
        return cell.text
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
