r"""The frac-connection, which splits the width of one stream into fractions instead of having several streams.

    h_i <- sum_j mix_ij h_j + write_i F(g)_i,    g_i = sum_j read_ij h_j
    read_ij = b_ij + a tanh(w_i . h'_j),  and so mix_ij;    write_j = b_j + a tanh(w . h'_j)

h_1, ..., h_m are the fractions of a token, h'_j = h_j / rms(h_j), and the branch F sees all of g. From Frac-Connections
(Zhu et al., 2025). m = num_fractions, c = dim, all channels
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gomhc.kernels.precision import at_least_float32, without_autocast
from gomhc.layers.coefficients import INITIAL_SCALE
from gomhc.shapes import Float


class FractionCoefficients(NamedTuple):
    """Coefficients of each token, or one set for all tokens if they are static; at least float32."""

    read: Float[Tensor, "*batch m m"]
    write: Float[Tensor, "*batch m"]
    mix: Float[Tensor, "*batch m m"]


class FracConnection(nn.Module):
    """Join a branch to one stream whose channels are split into m fractions, which are read, mixed and written to.

    It takes no more memory than a plain residual connection, and starts as one: read and mix are the identity, and
    write is one. It has the interface of :class:`gomhc.Residual`. As in the paper of Frac-Connections, the
    coefficients are not constrained.

    Args:
        branch: maps (*batch, c) to (*batch, c), or to a tuple that begins with such a tensor.
        dim: number of channels of the stream (c), a multiple of `num_fractions`.
        num_fractions: number of parts into which the channels are split (m).
        dynamic: whether coefficients are computed for each token; otherwise all tokens share the same ones.
        norm_epsilon: added to the mean square of a fraction.
        device: device of the parameters.
        dtype: dtype of the parameters; the coefficients are computed in at least float32.

    Shape:
        - input: (*batch, c)
        - output: (*batch, c), followed by whatever else the branch returned

    Example::

        >>> connection = gomhc.FracConnection(nn.Linear(8, 8), dim=8, num_fractions=2)
        >>> connection(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        branch: Callable[..., Any],
        dim: int,
        num_fractions: int = 4,
        *,
        dynamic: bool = True,
        norm_epsilon: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_fractions < 1 or dim % num_fractions != 0:
            raise ValueError(f"num_fractions must be at least 1 and divide dim={dim}, got {num_fractions}")
        self.branch = branch
        self.num_fractions = num_fractions
        self.norm_epsilon = norm_epsilon
        rows = 2 * num_fractions + 1
        self.bias = nn.Parameter(torch.empty(rows, num_fractions, device=device, dtype=dtype))
        self.weight: nn.Parameter | None = None
        self.scale: nn.Parameter | None = None
        if dynamic:
            self.weight = nn.Parameter(torch.empty(rows, dim // num_fractions, device=device, dtype=dtype))
            self.scale = nn.Parameter(torch.empty(3, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the coefficients to those of the plain residual connection."""
        identity = torch.eye(self.num_fractions, device=self.bias.device)
        self.bias.copy_(torch.cat((identity, identity.new_ones(1, self.num_fractions), identity)))
        if self.weight is not None and self.scale is not None:
            self.weight.zero_()
            self.scale.fill_(INITIAL_SCALE)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the stream after the branch, followed by whatever else the branch returned."""
        fractions = x.unflatten(-1, (self.num_fractions, -1))
        precision = at_least_float32(x.dtype)
        with without_autocast(x.device):
            wide = fractions.to(precision)
            read, write, mix = self.coefficients(wide)
            branch_input = (read @ wide).flatten(-2).to(x.dtype)
        output = self.branch(branch_input, *args, **kwargs)
        first = output[0] if isinstance(output, tuple) else output
        with without_autocast(x.device):
            written = write[..., None] * first.unflatten(-1, (self.num_fractions, -1)).to(precision)
            out = (mix @ wide + written).flatten(-2).to(x.dtype)
        return (out, *output[1:]) if isinstance(output, tuple) else out

    def coefficients(self, fractions: Float[Tensor, "*batch m e"]) -> FractionCoefficients:
        """Return read (m, m), write (m) and mix (m, m) of each token, or one set for all tokens if they are static."""
        sizes = (self.num_fractions, 1, self.num_fractions)
        steered = self.bias.to(fractions.dtype)
        if self.weight is not None and self.scale is not None:
            scales = zip(self.scale.to(fractions.dtype), sizes, strict=True)
            scale = torch.cat([value.expand(size) for value, size in scales])
            normed = F.rms_norm(fractions, fractions.shape[-1:], eps=self.norm_epsilon)
            steered = steered + scale[:, None] * (normed @ self.weight.to(fractions.dtype).mT).tanh().mT
        read, write, mix = steered.split(sizes, dim=-2)
        return FractionCoefficients(read, write.squeeze(-2), mix)

    def extra_repr(self) -> str:
        return f"{self.num_fractions} fractions, {'static' if self.weight is None else 'dynamic'}"
