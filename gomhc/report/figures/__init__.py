"""How do results look in a figure? One file an experiment, named after it: records in, exhibits out.

Add one: a function `exhibits(records) -> list[Exhibit]` in `gomhc/report/figures/<name>.py`, and a line here.
Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gomhc.report.figures import counts, depth, exactness, gain, gradients, map_times, parameters
from gomhc.report.page import Exhibit
from gomhc.results.record import Record

EXHIBITS: dict[str, Callable[[Sequence[Record]], list[Exhibit]]] = {
    "exactness": exactness.exhibits,
    "gain": gain.exhibits,
    "depth": depth.exhibits,
    "gradients": gradients.exhibits,
    "counts": counts.exhibits,
    "map-times": map_times.exhibits,
    "parameters": parameters.exhibits,
}
"""Name of an experiment -> what is shown of its records."""
