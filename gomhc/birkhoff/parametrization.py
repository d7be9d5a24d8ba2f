"""Base class for maps from free reals to matrices that mix streams.

d = num_streams, p = num_logits, C = num_channels
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gomhc import kernels
from gomhc.birkhoff import fitting, samplers
from gomhc.birkhoff.measures import marginal_error
from gomhc.birkhoff.promise import Promise
from gomhc.checks import LARGEST_WHOLE, require_number, require_whole
from gomhc.kernels.precision import at_least_float32, has_float64, in_float64, widened, without_autocast
from gomhc.shapes import Float

MOST_STREAMS = 1024
"""Maximum number of streams; no published network has had more than 32."""
LEAST_LEAK = 1e-10
"""Smallest initial leak: below it, float64 can hardly tell the matrix from the identity."""
FIT_TOLERANCE = 1e-3
"""Maximum error of row and column sums that `fit` accepts, unless the dtype of the matrix is coarser."""


class Fit(NamedTuple):
    """The logits whose matrix is closest to a target, and the distance that remains (Frobenius norm)."""

    logits: Float[Tensor, "*batch p"]
    distance: Float[Tensor, "*batch"]


@dataclass(frozen=True, kw_only=True)
class Parametrization(ABC):
    """Base class for maps from free reals to matrices that mix streams.

    A parametrization is an immutable value that you call with logits. The same value is the configuration, the choice
    on the command line and the entry in a record. It has no learned state. To add a method, write a subclass with a
    `key`, implement `num_logits` and `matrix`, state its `promise`, and register it with :func:`gomhc.register`.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.

    Shape:
        - logits: (*batch, p), p = num_logits
        - returns: (*batch, d, d)

    Example::

        >>> mixing = gomhc.PARAMETRIZATIONS["go"](num_streams=4)
        >>> matrix = mixing(mixing.initial_logits())
        >>> logits, distance = mixing.fit(matrix)
    """

    num_streams: int
    """Number of streams that the matrix mixes (d)."""

    initial_leak: float = 0.1
    """How far from the identity `initial_logits` starts: share of a stream that goes to others (1 - mean diagonal)."""

    key: ClassVar[str]
    """Name in `gomhc.PARAMETRIZATIONS` and on the command line."""

    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Names from the literature for settings of this method: name -> options."""

    starts_at_identity: ClassVar[bool] = False
    """Whether it starts at zero logits, which give the identity; then `initial_leak` is ignored. This suits methods
    whose Jacobian does not vanish at the identity."""

    def __post_init__(self) -> None:
        require_positive(self, "num_streams", most=MOST_STREAMS)
        require_number("initial_leak", self.initial_leak, least=LEAST_LEAK, most=0.5)  # on the identity nothing learns

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "matrix" in vars(cls) and "kernel" not in vars(cls):  # another equation than that of its base's kernel
            cls.kernel = None  # type: ignore[assignment,method-assign]

    @property
    @abstractmethod
    def num_logits(self) -> int:
        """Number of free reals (p)."""

    @abstractmethod
    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        """Compute the equation in the precision of `logits`; the caller has checked their dtype and shape."""

    @property
    def promise(self) -> Promise:
        """What holds for the matrices at every value of the logits."""
        return Promise.EXACT

    @property
    def covers_polytope(self) -> bool:
        """Whether every doubly stochastic matrix can be reached, or approached in the limit."""
        return False

    @property
    def kernel(self) -> str | None:
        """Form of the compiled version of `matrix` (see `gomhc.kernels.forms`), or None if there is none."""
        return None

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the matrices (*batch, d, d) for `logits` (*batch, p), in their dtype; autocast does not apply."""
        self._check(logits)
        with without_autocast(logits.device):
            wide = logits.to(at_least_float32(logits.dtype))
            return kernels.mixing(wide, self.kernel, self.matrix).to(logits.dtype)

    def initial_logits(self, generator: torch.Generator | None = None) -> Float[Tensor, " p"]:
        """Return logits of a random matrix whose mean diagonal is 1 - initial_leak, where the Jacobian does not vanish.

        They are on the generator's device, in torch's default dtype.
        """
        device = generator.device if generator is not None else torch.device("cpu")
        logits = self.draw_near_identity(_with_float64(generator))
        return logits.to(device, torch.get_default_dtype())

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        """Return `initial_logits` in float64. Base class: logits of (1 - leak) I + leak S, S random, zero diagonal."""
        if self.starts_at_identity:
            device = generator.device if generator is not None else torch.device("cpu")
            return torch.zeros(self.num_logits, dtype=torch.float64, device=device)
        away = samplers.sinkhorn_off_diagonal(self.num_streams, 1, generator)
        identity = torch.eye(self.num_streams, dtype=away.dtype, device=away.device)
        return self.closest_logits(torch.lerp(identity, away, self.initial_leak))[0]

    def fit(self, matrix: Tensor) -> Fit:
        """Return the logits whose matrix is closest to `matrix` (*batch, d, d), and the distance that remains.

        The matrix must have the sums and signs that the method promises: for most mixings, it must be doubly
        stochastic. If the map has no inverse in closed form, the result is the best of several deterministic local
        searches.
        """
        self._check_target(matrix)
        matrix = matrix.detach()
        target = in_float64(matrix)
        flat = target.reshape(-1, *matrix.shape[-2:]).clone()
        logits = self.closest_logits(flat).to(matrix.dtype).reshape(*matrix.shape[:-2], self.num_logits)
        distance = torch.linalg.matrix_norm(self(logits).double() - target)
        return Fit(logits.to(matrix.device), distance.to(matrix))

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Do the work of `fit`, for checked matrices in float64. Base class: a Levenberg-Marquardt search."""
        return fitting.closest_logits(self.matrix, fitting.random_starts(self.num_logits, matrix), matrix)

    def num_parameters(self, num_channels: int) -> int:
        """Number of parameters of a dynamic hyper-connection with C channels (table 1): (dC + 1) p + 2d²C + 2d + 3."""
        d, c = self.num_streams, num_channels
        return (d * c + 1) * self.num_logits + 2 * d * d * c + 2 * d + 3

    def _check(self, logits: Tensor) -> None:
        if not logits.is_floating_point():
            raise ValueError(f"logits must be real floating point, got {logits.dtype}; convert with logits.float()")
        if logits.dim() == 0 or logits.shape[-1] != self.num_logits:
            raise ValueError(
                f"{self} takes logits of shape (*batch, {self.num_logits}), got {tuple(logits.shape)}; "
                f"the size of the last dimension must be its num_logits"
            )

    def _check_target(self, matrix: Tensor) -> None:
        d = self.num_streams
        if not matrix.is_floating_point():
            raise ValueError(f"matrix must be real floating point, got {matrix.dtype}; convert with matrix.float()")
        if matrix.shape[-2:] != (d, d):
            raise ValueError(f"{self} fits matrices of shape (*batch, {d}, {d}), got {tuple(matrix.shape)}")
        if not self.can_fit(matrix):
            error, lowest = marginal_error(widened(matrix)).max().item(), matrix.min().item()
            raise ValueError(
                f"expected a matrix that is {self.promise.shape}, got row or column sums off by {error:.2g} and a "
                f"smallest entry of {lowest:.2g}; gomhc.birkhoff.balance(matrix) makes a positive matrix doubly "
                f"stochastic"
            )

    def can_fit(self, matrix: Float[Tensor, "*batch d d"]) -> bool:
        """Return whether all matrices have the promised sums and signs, within the tolerance of `fit`."""
        return self.promise.of_entries.admits(widened(matrix), _fit_tolerance(matrix))

    def admits(self, matrix: Float[Tensor, "*batch d d"]) -> bool:
        """Return whether all matrices keep the promise, within the tolerance of `fit`."""
        return self.promise.admits(widened(matrix), _fit_tolerance(matrix))


def _fit_tolerance(matrix: Tensor) -> float:
    return max(FIT_TOLERANCE, torch.finfo(matrix.dtype).eps)


def _with_float64(generator: torch.Generator | None) -> torch.Generator | None:
    """The generator, or one on the CPU that it seeds if its device has no float64."""
    if generator is None or has_float64(generator.device):
        return generator
    seed = torch.randint(2**31, (), generator=generator, device=generator.device)
    return torch.Generator("cpu").manual_seed(int(seed.item()))


def require_positive(parametrization: Parametrization, field: str, most: int = LARGEST_WHOLE) -> None:
    """A field that counts something must be whole and at least one."""
    require_whole(f"{field} of {type(parametrization).__name__}", getattr(parametrization, field), 1, most)
