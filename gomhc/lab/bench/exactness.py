"""Is each parametrization as exact as it promises, and what does it cost?

d = num_streams, p = num_logits, C = num_channels
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
"""How many logits are held at once: with more than 1,024 a matrix, fewer matrices are timed together."""


@dataclass(frozen=True)
class Row:
    """One parametrization at one number of streams; float32."""

    method: str
    promise: str
    num_streams: int
    num_logits: int
    num_parameters: int
    """Of one dynamic hyper-connection with 384 channels (table 1)."""
    marginal_errors: dict[float, float]
    """Logit scale -> the worst distance of a row or column sum from one."""
    forward_microseconds: float
    """For one matrix of a large batch."""
    training_microseconds: float
    """The same, forward and backward."""


def rows(seconds: float = 0.2) -> Iterator[Row]:
    """Measure everything in the registry; `seconds` is the least that each timing takes."""
    for key, cls in PARAMETRIZATIONS.items():
        for num_streams in STREAMS:
            yield measure(key, cls(num_streams=num_streams), seconds)


def num_rows() -> int:
    """How many rows there will be."""
    return len(PARAMETRIZATIONS) * len(STREAMS)


def measure(method: str, parametrization: Parametrization, seconds: float) -> Row:
    """One row of the table."""
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
        if matrix.requires_grad:  # that of Identity depends on nothing
            matrix.backward(cotangent)

    return Row(
        method=method,
        promise=parametrization.promise.name.lower(),
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
