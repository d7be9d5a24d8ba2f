"""What is trained in the toy experiments, and from where? The methods with the starts that the paper's code gives them.

There go-mHC's skew matrix is A = Z - Z^T with n² numbers Z, uniform in [0, 1) at first. Both of a pair move by the step
size, so A moves by twice as much as it would with n (n - 1) / 2 numbers. d = num_streams, s = expressivity, n = d s
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from torch import Tensor

from gomhc.birkhoff import Average, Kronecker, Orthostochastic, Parametrization
from gomhc.birkhoff.rotations import ROTATIONS
from gomhc.lab.experiments.methods import METHODS
from gomhc.lab.experiments.stream_mixer import Start
from gomhc.shapes import Float


class Learner(NamedTuple):
    """What makes the parametrization for a number of streams, and where training starts."""

    make: Callable[..., Parametrization]
    start: Start


@dataclass(frozen=True, kw_only=True)
class SoftmaxOrthostochastic(Orthostochastic):
    """Go-mHC with a softmax over the rows of Z that it does not need (app. B.9)."""

    key: ClassVar[str] = "go-softmax"

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        return super().matrix(logits.unflatten(-1, (self.size, self.size)).softmax(-1).flatten(-2))


def kronecker_of(factor: int) -> Callable[..., Parametrization]:
    """KromHC with factors of one size, whose power num_streams must be."""

    def make(num_streams: int) -> Parametrization:
        return Kronecker(num_streams=num_streams, factors=(factor,) * round(math.log(num_streams, factor)))

    return make


def kronecker_average(num_terms: int) -> Callable[..., Parametrization]:
    """A weighted mean of so many KromHC matrices (app. H.2)."""

    def make(num_streams: int) -> Parametrization:
        return Average(num_streams=num_streams, num_terms=num_terms, term=Kronecker(num_streams=num_streams))

    return make


_GO = partial(Orthostochastic, layout="square")
TERMS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Of averages of KromHC matrices."""

LEARNERS: dict[str, Learner] = {
    **{f"go-s{s}": Learner(partial(_GO, expressivity=s), "uniform") for s in (1, 2, 3)},
    **{f"go-unitary-s{s}": Learner(METHODS[f"go-unitary-s{s}"], "difference") for s in (1, 2)},
    **{name: Learner(METHODS[name], "normal") for name in ("mhc", "mhc-lite", "kromhc", "transportation", "identity")},
    "mhc-linear": Learner(METHODS["mhc-linear"], "uniform"),
    "go-softmax": Learner(partial(SoftmaxOrthostochastic, layout="square"), "uniform"),
    **{f"go-{rotation}": Learner(partial(Orthostochastic, rotation=rotation), "difference") for rotation in ROTATIONS},
    **{f"kromhc-of-{size}": Learner(kronecker_of(size), "normal") for size in (2, 3, 4, 5, 6)},
    **{f"kromhc-mean-{terms}": Learner(kronecker_average(terms), "normal") for terms in TERMS},
}
"""Name in records -> what is trained."""
