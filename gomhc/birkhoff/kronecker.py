"""KromHC: the Kronecker product of several small matrices.

d = num_streams, i_k = streams of the k-th factor, K = number of factors
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import LEAST_LEAK, Parametrization
from gomhc.birkhoff.permutations import Permutations
from gomhc.birkhoff.promise import Promise
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Kronecker(Parametrization):
    r"""The Kronecker product of small matrices (KromHC); it is doubly stochastic if they are.

        B = U_1 (x) U_2 (x) ... (x) U_K,    i_1 i_2 ... i_K = d

    Each factor is any parametrization. A number stands for `Permutations` with that many streams, as in KromHC.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        factors: the factors, each a number of streams or a parametrization; by default the prime factors of
            num_streams.

    Shape:
        - logits: (*batch, p), where p is the sum over the factors
        - returns: (*batch, d, d)

    Example::

        >>> mixing = gomhc.Kronecker(num_streams=6, factors=(3, gomhc.Orthostochastic(num_streams=2)))
        >>> mixing(torch.randn(10, mixing.num_logits)).shape
        torch.Size([10, 6, 6])
    """

    key: ClassVar[str] = "kronecker"
    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"kromhc": {}}

    factors: tuple[int | Parametrization, ...] = ()
    """The factors, each a number of streams or a parametrization; by default the prime factors of num_streams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.factors, list | tuple) or not all(map(_is_factor, self.factors)):
            raise ValueError(
                f"factors must be whole numbers or parametrizations as in factors=(2, 2), got {self.factors!r}"
            )
        factors = tuple(self.factors) or prime_factors(self.num_streams)
        sizes = tuple(factor if isinstance(factor, int) else factor.num_streams for factor in factors)
        if math.prod(sizes) != self.num_streams:
            raise ValueError(
                f"num_streams={self.num_streams} is not a product of factors {sizes}; "
                f"use factors={prime_factors(self.num_streams)} or another parametrization"
            )
        parts = [Permutations(num_streams=factor) if isinstance(factor, int) else factor for factor in factors]
        object.__setattr__(self, "factors", tuple(parts))

    @property
    def parts(self) -> tuple[Parametrization, ...]:
        """The factors, none of them a mere number."""
        return cast(tuple[Parametrization, ...], self.factors)

    @property
    def num_logits(self) -> int:
        return sum(part.num_logits for part in self.parts)

    @property
    def promise(self) -> Promise:
        promises = [part.promise for part in self.parts]
        return reduce(Promise.times, promises) if promises else Promise.EXACT

    @property
    def covers_polytope(self) -> bool:
        return len([part for part in self.parts if part.num_streams > 1]) <= 1 and all(
            part.covers_polytope for part in self.parts
        )

    @property
    def kernel(self) -> str | None:
        return forms.composite("kronecker", self.num_streams, [part.kernel for part in self.parts])

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        product = logits.new_ones(*logits.shape[:-1], 1, 1)
        for part, part_logits in zip(self.parts, self._split(logits), strict=True):
            product = kronecker_product(product, part.matrix(part_logits))
        return product

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        """The mean diagonal of a product is the product of the mean diagonals: a random share of it to each factor."""
        device = generator.device if generator is not None else torch.device("cpu")
        mixing = torch.tensor([part.num_streams > 1 and part.num_logits > 0 for part in self.parts], device=device)
        shares = mixing * (0.5 + torch.rand(len(mixing), generator=generator, dtype=torch.float64, device=device))
        leaks = -torch.expm1(shares / shares.sum() * math.log1p(-self.initial_leak))
        draws = [torch.zeros(0, dtype=torch.float64, device=device)]
        for part, leak in zip(self.parts, leaks.tolist(), strict=True):
            near = replace(part, initial_leak=max(leak, LEAST_LEAK)) if leak > 0 else part
            draws.append(near.draw_near_identity(generator))
        return torch.cat(draws)

    def _split(self, logits: Tensor) -> tuple[Tensor, ...]:
        return logits.split([part.num_logits for part in self.parts], dim=-1)


def _is_factor(factor: Any) -> bool:
    return isinstance(factor, Parametrization) or (type(factor) is int and factor >= 1)


def kronecker_product(a: Float[Tensor, "*batch i i"], b: Float[Tensor, "*batch j j"]) -> Float[Tensor, "*batch d d"]:
    """A (x) B for batches of matrices (torch.kron would multiply the batches too)."""
    blocks = a[..., :, None, :, None] * b[..., None, :, None, :]
    return blocks.flatten(-4, -3).flatten(-2, -1)


def prime_factors(number: int) -> tuple[int, ...]:
    """The primes whose product is `number`, smallest first."""
    for prime in range(2, math.isqrt(number) + 1):
        if number % prime == 0:
            return (prime, *prime_factors(number // prime))
    return (number,) if number > 1 else ()
