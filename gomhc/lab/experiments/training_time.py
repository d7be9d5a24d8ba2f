"""Training curves over seconds instead of epochs (not in the paper); each run has the machine to itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gomhc.lab.exhibits.curve_plots import floor_line, legend
from gomhc.lab.exhibits.exhibit import Exhibit, Plot, Table
from gomhc.lab.exhibits.style import line, look, new_figure
from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.toy import ToyRun
from gomhc.lab.results.claim import Claim, Finding, Rule
from gomhc.lab.results.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCHS = {
    "go-square-s1": 2000,
    "go-square-s2": 2000,
    "mhc-lite": 10_000,
    "kromhc": 10_000,
    "mhc": 10_000,
    "transportation": 10_000,
}
"""Enough of them for each to converge."""


@dataclass(frozen=True, kw_only=True)
class TimedRun(ToyRun):
    """A `ToyRun` on one thread with nothing else running; for matrices this small a second thread does not help."""

    @property
    def alone(self) -> bool:
        return True

    @property
    def num_threads(self) -> int:
        return 1


class TrainingTime(Experiment):
    """Seconds to converge."""

    name = "training-time"
    title = "Seconds to converge instead of epochs"
    paper = (
        "Sec. 5.1 counts epochs. An epoch of go-mHC costs more than one of KromHC and less than one of mHC-lite at "
        "large d."
    )
    order = 270
    claims = (
        Claim("training-time", "beyond the paper", "not there", "By the clock go is faster than mHC-lite too, d = 4.",
              "Seconds to converge: mHC-lite over go s = 2, one thread.", Rule(at_least=1)),
    )  # fmt: skip

    def runs(self, scale: Scale) -> Sequence[Run]:
        targets, share = (16, 2) if scale == "quick" else (64, 1)
        methods = ("go-square-s2", "mhc-lite", "kromhc") if scale == "quick" else tuple(EPOCHS)
        return [TimedRun(method=method, num_targets=targets, num_epochs=EPOCHS[method] // share) for method in methods]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        seconds = {record.configuration["method"]: seconds_to_converge(record) for record in records}
        if not {"go-square-s2", "mhc-lite"} <= seconds.keys():
            return {}
        value = seconds["mhc-lite"] / seconds["go-square-s2"]
        text = ", ".join(f"{method} {time:.2f} s" for method, time in seconds.items())
        return {"training-time": Finding(value, f"{value:.1f} times; {text}")}

    def exhibits(self, records: Sequence[Record]) -> list[Exhibit]:
        """Curves over time, and how long an epoch takes."""
        rows = [
            (
                look(record.configuration["method"]).label,
                1e6 * record.metrics["seconds"] / record.configuration["num_epochs"],
                record.metrics["converged"],
                seconds_to_converge(record),
                record.metrics["final"],
            )
            for record in records
        ]
        header = ("method", "µs an epoch", "epochs to converge", "seconds to converge", "final loss")
        caption = "Loss over seconds of training, d = 4, one thread, one run at a time on this machine."
        return [
            Plot(draw=lambda: self._draw(records), caption=caption),
            Table(header=header, rows=rows, caption="Times vary between machines; compare within the table."),
        ]

    def _draw(self, records: Sequence[Record]) -> Figure:
        figure = new_figure()
        axes = figure.subplots()
        for record in records:
            an_epoch = record.metrics["seconds"] / record.configuration["num_epochs"]
            seconds = [an_epoch * (epoch + 1) for epoch in record.metrics["epochs"]]
            axes.loglog(seconds, record.metrics["loss"], **line(record.configuration["method"]))
        floor_line(axes, 0.1)
        axes.set(xlabel="seconds", ylabel="loss")
        legend(axes)
        return figure


def seconds_to_converge(record: Record) -> float:
    """Seconds of training until the loss was within 5 % of its last value."""
    return record.metrics["converged"] * record.metrics["seconds"] / record.configuration["num_epochs"]
