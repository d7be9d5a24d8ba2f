r"""Search for the eigenvalues that matrices of a parametrization can have (app. A.5.1).

    for each target e:  minimise  min over eigenvalues x of B(z)  |x - e|²  over z

Targets are uniform in the square from -1 - i to 1 + i. All of them are one batch. d = num_streams
"""

from __future__ import annotations

import torch
from torch import Tensor

from gomhc.birkhoff.parametrization import Parametrization
from gomhc.shapes import Complex


def spectral_reach(
    parametrization: Parametrization,
    num_targets: int,
    generator: torch.Generator | None = None,
    *,
    num_steps: int = 200,
    learning_rate: float = 0.05,
    start_scale: float = 1.0,
) -> Complex[Tensor, "num_targets d"]:
    """The eigenvalues of one matrix for each target, which Adam reaches from normal logits of this scale."""
    device = generator.device if generator is not None else torch.device("cpu")
    square = torch.rand(num_targets, 2, generator=generator, dtype=torch.float64, device=device)
    target = torch.view_as_complex(2 * square - 1)[:, None]
    shape = (num_targets, parametrization.num_logits)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, device=device)
    logits = logits.mul(start_scale).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=learning_rate)
    for _ in range(num_steps if parametrization.num_logits > 0 else 0):
        distance = (torch.linalg.eigvals(parametrization(logits)) - target).abs().square().amin(-1)
        optimizer.zero_grad()
        distance.sum().backward()
        # Where two eigenvalues meet they have no derivative: such a matrix waits for its neighbours' momentum.
        assert logits.grad is not None
        logits.grad.nan_to_num_(0, 0, 0)
        optimizer.step()
    return torch.linalg.eigvals(parametrization(logits.detach()))
