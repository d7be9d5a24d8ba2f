r"""How does a branch become part of a network of d residual streams? Equation 1 of the paper.

    x_i <- sum_j mix_ij x_j + write_i F(sum_j read_j x_j)

d = num_streams, c = dim, the channels of a stream
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gomhc import kernels
from gomhc.birkhoff import Parametrization, Sinkhorn
from gomhc.layers.coefficients import Coefficients, Start
from gomhc.shapes import Float


class State(NamedTuple):
    """What `read` leaves for `write`."""

    streams: Float[Tensor, "*batch d c"]
    write: Float[Tensor, "*#batch d"]
    mix: Float[Tensor, "*#batch d d"]


class HyperConnection(nn.Module):
    """A branch of a network with d residual streams (*batch, d, c); the branch itself sees (*batch, c).

        connection = HyperConnection(branch, dim, Orthostochastic(num_streams=4))
        streams = connection(streams)

    Further arguments go to the branch. A branch that returns a tuple has its first element written to the streams, and
    the others (caches, attention weights) are returned behind them. In stacks that join one layer's write with the next
    one's read, the two halves stand alone, and the branch may be None:

        branch_input, state = connection.read(streams)
        streams = connection.write(state, branch_output)

    `mix` is applied as in the paper, out_i = sum_j mix_ij x_j; DeepSeek-V4 applies the transpose of its `comb`.
    Backward keeps the streams, the branch's output and the coefficients; with `recompute` it keeps the streams alone,
    and computes the rest, branch included, again.
    """

    def __init__(
        self,
        branch: Callable[..., Any] | None,
        dim: int,
        parametrization: Parametrization,
        *,
        dynamic: bool = True,
        start: Start = "mean-stream",
        layer_index: int = 0,
        recompute: bool = False,
        read_offset: float = 0.0,
        norm_epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.branch = branch
        self.recompute = recompute
        self.coefficients = Coefficients(
            dim,
            parametrization,
            dynamic=dynamic,
            start=start,
            layer_index=layer_index,
            read_offset=read_offset,
            norm_epsilon=norm_epsilon,
            generator=generator,
        )

    @property
    def parametrization(self) -> Parametrization:
        """What makes the mixing matrices."""
        return self.coefficients.parametrization

    def forward(self, streams: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The streams after the branch, followed by whatever else the branch returned."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._connect, streams, *args, use_reentrant=False, **kwargs)
        return self._connect(streams, *args, **kwargs)

    def read(self, streams: Tensor) -> tuple[Tensor, State]:
        """What the branch is to see, (*batch, c), and what `write` needs."""
        expected = (self.parametrization.num_streams, self.coefficients.dim)
        if streams.shape[-2:] != expected:
            raise ValueError(
                f"this connection takes streams of shape (*batch, {expected[0]}, {expected[1]}), "
                f"got {tuple(streams.shape)}; gomhc.expand(x, {expected[0]}) makes streams of x (*batch, {expected[1]})"
            )
        branch_input, write, mix = self.coefficients.read(streams)
        return branch_input, State(streams, write, mix)

    def write(self, state: State, branch_output: Tensor) -> Tensor:
        """The streams after the branch."""
        expected = (*state.streams.shape[:-2], self.coefficients.dim)
        if branch_output.shape != expected:
            raise ValueError(
                f"the branch must return the shape it is given, {expected}, got {tuple(branch_output.shape)}"
            )
        return kernels.write(state.streams, state.mix, state.write, branch_output)

    def _connect(self, streams: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.branch is None:
            raise ValueError("this connection has no branch; call read and write, or give it one")
        branch_input, state = self.read(streams)
        output = self.branch(branch_input, *args, **kwargs)
        if isinstance(output, tuple):
            return self.write(state, output[0]), *output[1:]
        return self.write(state, output)

    @classmethod
    def from_deepseek_v4(
        cls,
        branch: Callable[..., Any] | None,
        fn: Float[Tensor, "size dc"],
        base: Float[Tensor, " size"],
        scale: Float[Tensor, 3],
        *,
        epsilon: float = 1e-6,
        num_iterations: int = 20,
        norm_epsilon: float = 1e-6,
    ) -> HyperConnection:
        """A connection that computes what DeepSeek-V4's does with these weights (`hc_eps`, `hc_sinkhorn_iters`)."""
        d = next((d for d in range(1, len(base)) if d * (d + 2) == len(base)), 0)
        if d == 0 or fn.shape[0] != len(base) or fn.shape[1] % d != 0 or scale.shape != (3,):
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (fn, base, scale))
            raise ValueError(f"expected fn (d(d + 2), d c), base (d(d + 2)) and scale (3), got {shapes}")
        sinkhorn = Sinkhorn(num_streams=d, num_iterations=num_iterations, epsilon=epsilon)
        connection = cls(branch, fn.shape[1] // d, sinkhorn, read_offset=epsilon, norm_epsilon=norm_epsilon)
        connection.coefficients.load_state_dict({"weight": fn, "bias": base, "scale": scale})
        return connection.to(fn.device)

    def to_deepseek_v4(self) -> dict[str, Tensor]:
        """`fn`, `base` and `scale` of a connection that is in DeepSeek-V4's form."""
        parts = self.coefficients
        v4 = isinstance(parts.parametrization, Sinkhorn) and parts.parametrization.epsilon is not None
        if not v4 or parts.weight is None or parts.scale is None:
            raise ValueError(
                f"only dynamic connections with Sinkhorn(epsilon=...) have DeepSeek-V4's form, not {parts}"
            )
        return {"fn": parts.weight.detach(), "base": parts.bias.detach(), "scale": parts.scale.detach()}
