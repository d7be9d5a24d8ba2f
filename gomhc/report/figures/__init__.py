"""How do results look in a figure? One file an experiment, named after it: records in, exhibits out; nothing is trained.

Add one: a function `exhibits(records) -> list[Exhibit]` in `gomhc/report/figures/<name>.py`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gomhc.report.page import Exhibit
from gomhc.results.record import Record

EXHIBITS: dict[str, Callable[[Sequence[Record]], list[Exhibit]]] = {}
"""Name of an experiment -> what is shown of its records."""
