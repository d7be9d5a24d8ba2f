r"""Time and memory of computing doubly stochastic matrices with each method, forward and backward.

Three references are written out here in plain torch, as other implementations have them: the linear solve of go-mHC,
Sinkhorn's iteration, and mHC-lite's product.
d = num_streams, s = expressivity, n = d * s
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from gomhc import kernels
from gomhc.birkhoff import PARAMETRIZATIONS, Kronecker, Orthostochastic, Permutations
from gomhc.birkhoff.rotations import ROTATIONS
from gomhc.lab.bench.operations import FACTORS, PRODUCT_OF_GO
from gomhc.lab.bench.timing import Benchmark, Contender, is_installed
from gomhc.shapes import Float

Map = Callable[[Tensor], Tensor]

GO = Orthostochastic.key
SOLVE = "linalg.solve"
PRODUCT = "mHC-lite's product"
ITERATIONS = "20 Sinkhorn iterations"
PEER, PEER_MODULE = "hyper-connections' Sinkhorn", "hyper_connections.mHCv2"
"""The same twenty iterations in the package hyper-connections; measured where it is installed."""

MAIN, LARGER = (4, 2), (8, 2)
"""(d, s) at which every method is compared."""
STREAMS = (1, 2, 4, 8, 16, 32, 64)
GROWTH = tuple((d, s) for d in STREAMS for s in (1, 2, 3))
LARGEST_BATCH = 2**20
"""Maximum number of rotation entries in a batch of `grow`, as 16,384 matrices of (4, 2) have; larger sizes have fewer
matrices."""

LARGEST_SOLVE = 128
"""Maximum number of rows for `torch.linalg.solve`: with torch 2.13 and MKL on two threads, a batch of 28 matrices of
192 rows fails at times ("Pivots given to lu_solve")."""


@dataclass(frozen=True, kw_only=True)
class Projection(Benchmark):
    """The maps alone: each method computes a batch of doubly stochastic matrices."""

    num_matrices: int = 16384
    """Number of matrices in a call."""
    grow: bool = False
    """Also measure every method for d = 1 to 64, go-mHC and linalg.solve for s = 1 to 3, and plot go-mHC's time."""
    plot: Path = Path("bench-projection.png")
    """File for the plot of --grow."""

    title: ClassVar[str] = "Doubly stochastic matrices, forward and backward"
    references: ClassVar[tuple[str, ...]] = (SOLVE, ITERATIONS, PEER, PRODUCT)

    def contenders(self) -> list[Contender]:
        d, s = MAIN
        contenders = [*self._go_and_solve(d, s, kernels.available()), *self._rotations(d, s), *self._others(d, s)]
        contenders.append(self._contender(PRODUCT, d, s, math.factorial(d), mhc_lite_product(d)))
        if is_installed(PEER_MODULE):
            contenders.append(self._contender(PEER, d, s, d * d, peer_iterations(d)))
        contenders += [*self._go_and_solve(*LARGER, kernels.available()), *self._rotations(*LARGER)]
        contenders += self._others(*LARGER)
        for d, s in GROWTH if self.grow else ():
            if (d, s) not in (MAIN, LARGER):
                contenders += [*self._go_and_solve(d, s, []), *(self._others(d, s) if s == MAIN[1] else ())]
            if d in FACTORS:
                factors = tuple(Orthostochastic(num_streams=factor, expressivity=s) for factor in FACTORS[d])
                product = Kronecker(num_streams=d, factors=factors)
                contenders.append(self._contender(PRODUCT_OF_GO, d, s, product.num_logits, product))
        return contenders

    def _rotations(self, d: int, s: int) -> Iterator[Contender]:
        """Yield go-mHC with each rotation that is not Cayley's."""
        for name in ROTATIONS:
            go = Orthostochastic(num_streams=d, expressivity=s, rotation=name)
            if go.rotation != Orthostochastic.rotation:
                yield self._contender(f"{GO}, {name}", d, s, go.num_logits, go)

    def _others(self, d: int, s: int) -> Iterator[Contender]:
        """Yield every other method, and Sinkhorn's iteration; permutations of many streams are too many."""
        for key, cls in PARAMETRIZATIONS.items():
            if key != GO and not (cls is Permutations and d > MAIN[0]):
                method = cls(num_streams=d)
                yield self._contender(key, d, s, method.num_logits, method)
        yield self._contender(ITERATIONS, d, s, d * d, sinkhorn_iterations)

    def remarks(self) -> list[str]:
        names = ", ".join(kernels.available())
        missing = [] if is_installed(PEER_MODULE) else [f"not installed: {PEER}"]
        return [f"{GO}: with the kernel that gomhc chooses, and with each kernel ({names})", *missing]

    def _go_and_solve(self, d: int, s: int, kernel_names: Sequence[str]) -> Iterator[Contender]:
        """Yield the solve, go-mHC as it runs by default, and go-mHC with each of these kernels."""
        go = Orthostochastic(num_streams=d, expressivity=s)
        if d * s <= LARGEST_SOLVE:
            yield self._contender(SOLVE, d, s, go.num_logits, Solve(num_streams=d, expressivity=s))
        yield self._contender(GO, d, s, go.num_logits, go)
        for name in kernel_names:
            contender = self._contender(f"{GO} ({name})", d, s, go.num_logits, go)
            yield Contender(contender.method, contender.sizes, with_kernels(name, contender.run))

    def _contender(self, method: str, d: int, s: int, num_logits: int, function: Map) -> Contender:
        num_matrices = self.num_matrices
        if (d, s) not in (MAIN, LARGER):
            num_matrices = min(num_matrices, LARGEST_BATCH // (d * s) ** 2)
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(num_matrices, num_logits, generator=generator)
        cotangent = torch.randn(num_matrices, d, d, generator=generator)

        def run() -> None:
            matrix = function(logits.detach().requires_grad_())
            if matrix.requires_grad:  # Identity has no logits to differentiate
                matrix.backward(cotangent)

        return Contender(method, {"d": d, "s": s, "matrices": num_matrices}, run)


def with_kernels(name: str, run: Callable[[], object]) -> Callable[[], None]:
    """Return `run` with the kernels of that name, forward and backward."""

    def forced() -> None:
        with kernels.use(name):
            run()

    return forced


@dataclass(frozen=True, kw_only=True)
class Solve:
    r"""Go-mHC as a batched LAPACK solve in float32, differentiated by autograd: the main reference.

    Q = (I + A)^{-1} (I - A),    B_ij = (1/s) ||Q_ij||_F^2
    """

    num_streams: int
    expressivity: int

    def __call__(self, logits: Float[Tensor, "batch p"]) -> Float[Tensor, "batch d d"]:
        d, s = self.num_streams, self.expressivity
        row, column = torch.triu_indices(d * s, d * s, offset=1)
        upper = logits.new_zeros(len(logits), d * s, d * s)
        upper[:, row, column] = logits
        a, identity = upper - upper.mT, torch.eye(d * s)
        q = torch.linalg.solve(identity + a, identity - a)
        return q.reshape(-1, d, s, d, s).square().sum((2, 4)) / s


def sinkhorn_iterations(logits: Float[Tensor, "batch dd"]) -> Float[Tensor, "batch d d"]:
    """Normalize rows and columns in turn, in log space, twenty times."""
    d = round(logits.shape[-1] ** 0.5)
    z = logits.reshape(-1, d, d)
    for _ in range(20):
        z = z - z.logsumexp(-1, keepdim=True)
        z = z - z.logsumexp(-2, keepdim=True)
    return z.exp()


def peer_iterations(num_streams: int) -> Map:
    """Return twenty iterations of the package hyper-connections."""
    sinkhorn = import_module(PEER_MODULE).sinkhorn_knopps
    return lambda logits: sinkhorn(logits.unflatten(-1, (num_streams, num_streams)))


def mhc_lite_product(num_streams: int) -> Map:
    """Return softmax(z) P, where the rows of P are the d! permutation matrices."""
    orders = torch.tensor(list(permutations(range(num_streams))))
    vertices = torch.eye(num_streams)[orders].flatten(1)
    return lambda logits: (logits.softmax(-1) @ vertices).unflatten(-1, (num_streams, num_streams))
