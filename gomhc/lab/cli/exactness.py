"""`gomhc exactness`: how exact is each method?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from gomhc.checks import require_number
from gomhc.lab.bench.exactness import num_rows, rows
from gomhc.lab.cli.terminal import table_console, with_progress, write_json
from gomhc.lab.files import require_writable
from gomhc.lab.report import tables


def exactness(
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None, seconds: float = 0.2
) -> None:
    """Print how exact each parametrization is, and what it costs.

    Args:
        json_file: Also write the rows to this file.
        seconds: The least time that each timing takes; more is steadier.
    """
    require_number("seconds", seconds, least=0)
    if json_file is not None:
        require_writable(json_file)
    found = list(with_progress(rows(seconds), num_rows(), lambda row: f"{row.method} d={row.num_streams}"))
    table_console().print(tables.exactness_table(found))
    if json_file is not None:
        write_json(json_file, [asdict(row) for row in found])
