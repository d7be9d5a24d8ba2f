"""Averages of several matrices of one parametrization, with learned weights (app. H).

d = num_streams, k = number of terms
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gomhc.birkhoff import fitting
from gomhc.birkhoff.orthostochastic import Orthostochastic
from gomhc.birkhoff.parametrization import Parametrization, require_positive
from gomhc.birkhoff.promise import Promise
from gomhc.birkhoff.registry import as_mixing
from gomhc.kernels import forms
from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Average(Parametrization):
    r"""A learned convex combination of k matrices of one parametrization (app. H).

        w = softmax(b),    B = sum_i w_i B_i(z_i)

    The logits are those of each term in turn, then the k weights. Terms that start as the identity get equal gradients
    and stay equal, so use a term whose start is random.

    Args:
        num_streams: number of streams that the matrix mixes (d).
        initial_leak: share of a stream that goes to other streams at first.
        num_terms: number of matrices that are averaged (k).
        term: parametrization of each matrix, a value or text; by default :class:`gomhc.Orthostochastic` with
            expressivity 1.

    Shape:
        - logits: (*batch, p) with p = k (logits of a term + 1)
        - returns: (*batch, d, d)

    Example::

        >>> mixing = gomhc.Average(num_streams=4, num_terms=3, term="kronecker")
        >>> mixing(torch.randn(10, mixing.num_logits)).shape
        torch.Size([10, 4, 4])
    """

    key: ClassVar[str] = "average"

    num_terms: int = 2
    """Number of matrices that are averaged (k)."""

    term: Parametrization | str | None = None
    """Parametrization of each matrix, a value or text; by default Orthostochastic with expressivity 1, as in the paper.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_terms")
        if self.term is None:
            object.__setattr__(self, "term", Orthostochastic(num_streams=self.num_streams, expressivity=1))
        if isinstance(self.term, str):
            object.__setattr__(self, "term", as_mixing(self.term, self.num_streams))
        if not isinstance(self.term, Parametrization):
            raise ValueError(f"term must be a parametrization or its key, such as 'go', got {self.term!r}")
        if self.part.num_streams != self.num_streams:
            raise ValueError(
                f"num_streams={self.num_streams} but the averaged term has {self.part.num_streams}; "
                f"use term={replace(self.part, num_streams=self.num_streams)}"
            )

    @property
    def part(self) -> Parametrization:
        """The term as a value."""
        assert isinstance(self.term, Parametrization)
        return self.term

    @property
    def num_logits(self) -> int:
        return self.num_terms * (self.part.num_logits + 1)

    @property
    def promise(self) -> Promise:
        return self.part.promise.averaged()

    @property
    def covers_polytope(self) -> bool:
        return self.part.covers_polytope

    @property
    def kernel(self) -> str | None:
        return forms.composite("average", self.num_streams, [self.part.kernel] * self.num_terms)

    def matrix(self, logits: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch d d"]:
        term_logits = logits[..., : -self.num_terms].unflatten(-1, (self.num_terms, self.part.num_logits))
        weights = logits[..., -self.num_terms :].softmax(-1)
        return torch.einsum("...s, ...sij -> ...ij", weights, self.part.matrix(term_logits))

    def draw_near_identity(self, generator: torch.Generator | None) -> Float[Tensor, " p"]:
        """Every term as near as the whole, and equal weights."""
        term = replace(self.part, initial_leak=self.initial_leak)
        draws = [term.draw_near_identity(generator) for _ in range(self.num_terms)]
        return torch.cat((*draws, draws[0].new_zeros(self.num_terms)))

    def closest_logits(self, matrix: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch p"]:
        """Searches from random logits, and from every term as close as it comes alone: never worse than one term."""
        alone = self.part.closest_logits(matrix).repeat(1, self.num_terms)
        alone = torch.cat((alone, alone.new_zeros(len(alone), self.num_terms)), dim=-1)
        starts = torch.cat((fitting.random_starts(self.num_logits, matrix), alone[:, None]), dim=1)
        return fitting.closest_logits(self.matrix, starts, matrix)
