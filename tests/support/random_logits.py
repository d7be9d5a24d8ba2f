"""Random and extreme logits of a parametrization, cotangents, and the tolerance of its sums."""

from __future__ import annotations

import torch

from gomhc import Parametrization

SCALES = (1e-3, 1e-1, 1.0, 10.0, 1e2, 1e3, 1e4)


def random_logits(parametrization: Parametrization, *batch: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*batch, parametrization.num_logits, dtype=torch.float64, generator=generator).to(dtype)


def tolerance(parametrization: Parametrization, dtype: torch.dtype) -> float:
    """A few n eps, where n is the size of the largest matrix that is computed with."""
    size = getattr(parametrization, "size", parametrization.num_streams)
    return 2 * size * torch.finfo(dtype).eps


def extreme_logits(parametrization: Parametrization, dtype: torch.dtype) -> torch.Tensor:
    """The dtype's largest numbers: everywhere, with random signs, among ordinary ones and alone; and none, zeros."""
    generator, p = torch.Generator().manual_seed(0), parametrization.num_logits
    largest = torch.finfo(dtype).max
    ordinary = torch.randn(20, p, generator=generator)
    signs = largest * ordinary.sign().to(dtype)
    mixed = torch.where(torch.rand(20, p, generator=generator) < 0.5, signs, ordinary.to(dtype))
    alone = largest * torch.eye(p, dtype=dtype)[: min(p, 20)]
    constant = torch.tensor([[largest], [-largest], [0.0]], dtype=dtype).expand(3, p)
    return torch.cat((constant, signs, mixed, alone))


def cotangent_like(matrix):
    return torch.randn(matrix.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(matrix)
