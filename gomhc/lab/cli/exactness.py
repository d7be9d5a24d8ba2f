"""`gomhc exactness`: marginal errors and costs of every method."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from gomhc.checks import require_number
from gomhc.lab.bench.marginal_errors import MarginalErrors, measurements, num_measurements
from gomhc.lab.cli.exactness_table import exactness_table
from gomhc.lab.cli.terminal import print_table, table_console, with_progress, write_json
from gomhc.lab.files import require_writable


def exactness(
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None, seconds: float = 0.2
) -> None:
    """Print how exact each mixing is, how many logits and parameters it has, and how long it takes.

    Args:
        json_file: Also write the numbers to this file.
        seconds: Minimum duration of each timing; longer timings vary less.
    """
    require_number("seconds", seconds, least=0)
    if json_file is not None:
        require_writable(json_file)
    measured = list(with_progress(measurements(seconds), num_measurements(), _describe))
    print_table(table_console(), exactness_table(measured))
    if json_file is not None:
        write_json(json_file, [asdict(measurement) for measurement in measured])


def _describe(measurement: MarginalErrors) -> str:
    return f"{measurement.method} d={measurement.num_streams}"
