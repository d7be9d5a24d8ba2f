"""The run that all experiments on convergence share: one method learns one task.

It records the loss, averaged over targets, at epochs that lie evenly on a logarithmic axis.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gomhc.birkhoff import Orthostochastic, Parametrization, as_mixing
from gomhc.lab.experiments.experiment import Run
from gomhc.lab.experiments.stream_mixer import (
    Epoch,
    LogitStart,
    MixingTask,
    Problem,
    draw_problem,
    lowest_loss,
    start_logits,
    train,
)
from gomhc.lab.results.record import Record, select
from gomhc.statistics.curves import epochs_to_converge

NUM_POINTS = 150
"""Epochs of a curve that are kept."""


@dataclass(frozen=True, kw_only=True)
class ToyRun(Run, MixingTask):
    """One method on one task, whose fields are the run's own."""

    method: str
    """A mixing, as `gomhc.birkhoff.as_mixing` takes it."""

    start: LogitStart | None = None
    """Distribution of the logits at the start; None for that of the paper's code."""

    @property
    def mixing(self) -> Parametrization:
        """The mixing that learns."""
        return as_mixing(self.method, self.num_streams)

    @property
    def full_size(self) -> bool:
        return self.num_targets >= 64 and self.num_samples >= 100

    @property
    def cost(self) -> float:
        size = self.num_targets * (self.mixing.num_logits * self.num_streams + self.num_streams**3)
        return self.num_epochs * (3e-4 + 2e-9 * size)

    def begin(self) -> tuple[Problem, Iterator[Epoch]]:
        """Draw the problem, and return it with an iterator that trains one epoch at a time."""
        generator = torch.Generator().manual_seed(self.seed)
        problem = draw_problem(self, generator)
        start = self.start or published_start(self.mixing)
        logits = start_logits(self.mixing, start, self.num_targets, generator)
        return problem, train(self.mixing, self, problem, logits)

    def execute(self) -> dict[str, Any]:
        problem, epochs = self.begin()
        began = time.perf_counter()
        losses = torch.stack([epoch.losses for epoch in epochs]).double().numpy()
        seconds = time.perf_counter() - began
        lowest = lowest_loss(problem).mean().item() if self.objective == "streams" else None
        reached = first_below(losses.mean(1), 1.05 * lowest) if lowest is not None else None
        return {**describe(losses), "lowest": lowest, "reached": reached, "seconds": seconds}


def published_start(mixing: Parametrization) -> LogitStart:
    """Return the distribution of logits that the paper's code starts from.

    Its go-mHC has A = Z - Z^T with n² numbers Z, uniform in [0, 1) at first; a difference of two such is what A itself
    then starts from. Both numbers of a pair move by the step size, so A moves by twice as much as it would with
    n (n - 1) / 2 numbers.
    """
    if isinstance(mixing, Orthostochastic) and mixing.layout == "square":
        return "uniform"
    starts: dict[str, LogitStart] = {"go": "difference", "go-unitary": "difference", "sinkhorn-linear": "uniform"}
    return starts.get(mixing.key, "normal")


def quick_epochs(method: str) -> int:
    """Enough at quick scale: Sinkhorn and mHC-lite take thousands to converge, the others hundreds."""
    return 5000 if method in ("mhc", "mhc-lite") else 2000


def describe(losses: np.ndarray) -> dict[str, Any]:
    """Reduce the losses (epochs + 1, targets) to what a record keeps."""
    curve = losses.mean(1)
    epochs = log_spaced(len(curve))
    return {
        "epochs": epochs.tolist(),
        "loss": curve[epochs].tolist(),
        "quartiles": np.quantile(losses[epochs], (0.25, 0.75), axis=1).tolist(),
        "first": float(curve[0]),
        "final": float(curve[-1]),
        "converged": epochs_to_converge(curve),
        "descended": first_below(curve, 0.9 * curve[0] + 0.1 * curve[-1]),
        "final_of_each": losses[-1].tolist(),
    }


def log_spaced(length: int) -> np.ndarray:
    """Indices from 0 to length - 1, denser at the beginning."""
    return np.unique(np.geomspace(1, length, NUM_POINTS).round().astype(int)) - 1


def first_below(curve: np.ndarray, level: float) -> int | None:
    """The first epoch at which the loss is no larger than this."""
    return int(np.argmax(curve <= level)) if (curve <= level).any() else None


def metric(records: Iterable[Record], name: str, **configuration: Any) -> float | None:
    """A metric of the one record with this configuration; None where there is none, or it is not finite."""
    matching = select(records, **configuration)
    return matching[0].metrics.get(name) if len(matching) == 1 else None


def ratio(records: Iterable[Record], name: str, over: str, under: str, **configuration: Any) -> float | None:
    """A metric of method `over` divided by that of method `under`, all else equal."""
    records = list(records)
    above = metric(records, name, method=over, **configuration)
    below = metric(records, name, method=under, **configuration)
    return above / below if above is not None and below else None
