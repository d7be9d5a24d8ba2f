"""Is go-mHC faster by the clock as well? Seconds instead of epochs (not in the paper). Each run has the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.lab.experiments.experiment import Experiment, Run, Scale
from gomhc.lab.experiments.toy import ToyRun
from gomhc.lab.results.claim import Finding
from gomhc.lab.results.record import Record

EPOCHS = {"go-s1": 2000, "go-s2": 2000, "mhc-lite": 10_000, "kromhc": 10_000, "mhc": 10_000, "transportation": 10_000}
"""Enough of them for each to converge."""


@dataclass(frozen=True, kw_only=True)
class TimedRun(ToyRun):
    """As `ToyRun`, with nothing else running, on one thread: matrices this small only wait for a second one."""

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

    def runs(self, scale: Scale) -> Sequence[Run]:
        targets, share = (16, 2) if scale == "quick" else (64, 1)
        methods = ("go-s2", "mhc-lite", "kromhc") if scale == "quick" else tuple(EPOCHS)
        return [TimedRun(method=method, num_targets=targets, num_epochs=EPOCHS[method] // share) for method in methods]

    def findings(self, records: Sequence[Record]) -> dict[str, Finding]:
        seconds = {record.configuration["method"]: seconds_to_converge(record) for record in records}
        if not {"go-s2", "mhc-lite"} <= seconds.keys():
            return {}
        value = seconds["mhc-lite"] / seconds["go-s2"]
        text = ", ".join(f"{method} {time:.2f} s" for method, time in seconds.items())
        return {"training-time": Finding(value, f"{value:.1f} times; {text}")}


def seconds_to_converge(record: Record) -> float:
    """Seconds of training until the loss was within 5 % of its last value."""
    return record.metrics["converged"] * record.metrics["seconds"] / record.configuration["num_epochs"]
