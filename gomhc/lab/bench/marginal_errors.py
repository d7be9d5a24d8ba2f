"""Marginal errors, sizes and times of every method in the registry, at several numbers of streams and logit scales.

d = num_streams, p = num_logits
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

from gomhc.birkhoff import PARAMETRIZATIONS, Parametrization
from gomhc.birkhoff.measures import marginal_error

STREAMS = (2, 3, 4, 8)
LOGIT_SCALES = (0.1, 1.0, 10.0, 1000.0)
NUM_CHANNELS = 384
NUM_MATRICES = 4096
LARGEST_BATCH = 2**22
"""Maximum number of logits in a batch; beyond 1,024 logits per matrix, fewer matrices are timed together."""


@dataclass(frozen=True)
class MarginalErrors:
    """Error, size and time of one method at one number of streams, in float32."""

    method: str
    promise: str
    num_streams: int
    num_logits: int
    num_parameters: int
    """Parameters of one dynamic hyper-connection with 384 channels (table 1)."""
    marginal_errors: dict[float, float]
    """Logit scale -> largest |row or column sum - 1|."""
    forward_microseconds: float
    """Forward time per matrix of a large batch."""
    training_microseconds: float
    """Forward and backward time per matrix of the same batch."""


def measurements(seconds: float = 0.2) -> Iterator[MarginalErrors]:
    """Measure every method in the registry; each timing runs for at least `seconds`."""
    for key, cls in PARAMETRIZATIONS.items():
        for num_streams in STREAMS:
            yield measure(key, cls(num_streams=num_streams), seconds)


def num_measurements() -> int:
    """Return how many measurements `measurements` yields."""
    return len(PARAMETRIZATIONS) * len(STREAMS)


def measure(method: str, parametrization: Parametrization, seconds: float) -> MarginalErrors:
    """Measure one method; each of its two timings runs for at least `seconds`."""
    generator = torch.Generator().manual_seed(0)
    p = parametrization.num_logits
    num_matrices = min(NUM_MATRICES, LARGEST_BATCH // max(1, p))
    logits = torch.randn(num_matrices, p, generator=generator)
    cotangent = torch.randn(num_matrices, parametrization.num_streams, parametrization.num_streams, generator=generator)
    errors = {scale: marginal_error(parametrization(scale * logits).double()).max().item() for scale in LOGIT_SCALES}

    def forward() -> None:
        parametrization(logits)

    def training() -> None:
        leaf = logits.detach().requires_grad_()
        matrix = parametrization(leaf)
        if matrix.requires_grad:  # Identity has no logits to differentiate
            matrix.backward(cotangent)

    return MarginalErrors(
        method=method,
        promise=str(parametrization.promise),
        num_streams=parametrization.num_streams,
        num_logits=p,
        num_parameters=parametrization.num_parameters(NUM_CHANNELS),
        marginal_errors=errors,
        forward_microseconds=_microseconds(forward, seconds) / num_matrices,
        training_microseconds=_microseconds(training, seconds) / num_matrices,
    )


def _microseconds(function: Callable[[], None], seconds: float) -> float:
    timer = Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
    return 1e6 * timer.blocked_autorange(min_run_time=seconds).median
