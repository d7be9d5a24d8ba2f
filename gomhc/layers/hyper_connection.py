r"""The hyper-connection, which joins a branch to d residual streams: equation 1 of the paper.

    x_i <- sum_j mix_ij x_j + write_i F(sum_j read_j x_j)

d = num_streams, c = dim, the channels of a stream
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gomhc.birkhoff import Parametrization
from gomhc.layers.coefficients import DEFAULT_START, INITIAL_SCALE, Coefficients, Start
from gomhc.layers.state import Pending, State, written


class HyperConnection(nn.Module):
    """Join a branch to d residual streams: mix them, and add the branch's output to each.

    The branch sees one stream (*batch, c), a weighted sum. Further arguments are passed to the branch. If it returns a
    tuple, the first element is written to the streams, and the others (caches, attention weights) are returned after
    them. Stacks that fuse one layer's write with the next one's read call :meth:`read` and :meth:`write`; the branch
    may be None then.

    `mix` is applied as in the paper, out_i = sum_j mix_ij x_j; DeepSeek-V4 applies the transpose of its `comb`.

    Args:
        branch: maps (*batch, c) to (*batch, c): a module or a function, or None.
        dim: channels of a stream (c).
        mixing: what mixes the streams, a :class:`gomhc.Parametrization` or text: a key of `gomhc.PARAMETRIZATIONS` or
            a name such as ``"mhc-lite"``, with options after a colon (``"go:expressivity=3"``).
        num_streams: d; by default that of `mixing`, or 4 where it is text.
        dynamic: whether each token steers its own coefficients, or all tokens share them.
        start: initial values of the coefficients, ``"mean-stream"``, ``"equal-streams"``, ``"near-identity"`` or
            ``"deepseek-v4"``. With the first two, a network starts as its plain residual twin; see
            :meth:`reset_parameters` of `Coefficients`.
        initial_scale: how strongly the streams steer the coefficients at first (a of equations 2 to 4).
        layer_index: which connection of the network this is; ``"equal-streams"`` and ``"near-identity"`` favour
            stream `layer_index` modulo d.
        recompute: whether backward keeps the streams alone and computes the rest again, branch included.
        pending: whether calling the connection leaves its write to the one that reads next, which does both in one
            pass: it returns a :class:`gomhc.layers.Pending`, which connections take in place of streams. `recompute`
            keeps nothing but streams, so it writes at once.
        read_offset: added to the read coefficients (`hc_eps` of DeepSeek-V4).
        norm_epsilon: added to the mean square of the streams.
        generator: draws the initial values.
        device: device of the parameters.
        dtype: dtype of the parameters; the coefficients are computed in at least float32.

    Shape:
        - input: (*batch, d, c)
        - output: (*batch, d, c)

    Example::

        >>> connection = gomhc.HyperConnection(nn.Linear(8, 8), dim=8, mixing="go", num_streams=4)
        >>> streams = gomhc.expand(torch.randn(2, 5, 8), 4)
        >>> connection(streams).shape
        torch.Size([2, 5, 4, 8])
    """

    def __init__(
        self,
        branch: Callable[..., Any] | None,
        dim: int,
        mixing: Parametrization | str = "go",
        num_streams: int | None = None,
        *,
        dynamic: bool = True,
        start: Start = DEFAULT_START,
        initial_scale: float = INITIAL_SCALE,
        layer_index: int = 0,
        recompute: bool = False,
        pending: bool = False,
        read_offset: float = 0.0,
        norm_epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.branch = branch
        self.recompute = recompute
        self.pending = pending
        self.coefficients = Coefficients(
            dim,
            mixing,
            num_streams,
            dynamic=dynamic,
            start=start,
            initial_scale=initial_scale,
            layer_index=layer_index,
            read_offset=read_offset,
            norm_epsilon=norm_epsilon,
            generator=generator,
            device=device,
            dtype=dtype,
        )

    @property
    def mixing(self) -> Parametrization:
        """The parametrization that makes the mixing matrices."""
        return self.coefficients.mixing

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the coefficients to their initial values; the branch, which is the caller's, stays as it is.

        Args:
            generator: draws the random values; by default torch's global one.

        Example::

            >>> with torch.device("meta"):
            ...     connection = gomhc.HyperConnection(None, dim=8)
            >>> connection.to_empty(device="cpu").reset_parameters()
        """
        self.coefficients.reset_parameters(generator)

    def forward(self, streams: Tensor | Pending, *args: Any, **kwargs: Any) -> Any:
        """Return the streams after the branch, followed by whatever else the branch returned.

        Args:
            streams: the residual streams.
            args: further arguments of the branch.
            kwargs: further arguments of the branch.

        Shape:
            - streams: (*batch, d, c)
            - returns: (*batch, d, c)

        Example::

            >>> connection = gomhc.HyperConnection(lambda x, scale: (scale * x, "cache"), dim=8)
            >>> streams, cache = connection(torch.randn(2, 4, 8), scale=0.5)
            >>> cache
            'cache'
        """
        if self.recompute and torch.is_grad_enabled():
            streams = written(streams)
            return checkpoint(self._connect, streams, *args, use_reentrant=False, **kwargs)
        return self._connect(streams, *args, **kwargs)

    def read(self, streams: Tensor | Pending) -> tuple[Tensor, State]:
        """Return what the branch is to see, and what :meth:`write` needs.

        Args:
            streams: the residual streams, or a :class:`gomhc.layers.Pending` of the connection before.

        Shape:
            - streams: (*batch, d, c)
            - returns: (*batch, c), and a state

        Example::

            >>> connection = gomhc.HyperConnection(None, dim=8)
            >>> branch_input, state = connection.read(torch.randn(2, 4, 8))
            >>> streams = connection.write(state, torch.tanh(branch_input))
        """
        coefficients = self.coefficients
        shape = streams.state.streams.shape if isinstance(streams, Pending) else streams.shape
        expected = (coefficients.mixing.num_streams, coefficients.dim)
        if shape[-2:] != expected:
            raise ValueError(
                f"this connection takes streams of shape (*batch, {expected[0]}, {expected[1]}), "
                f"got {tuple(shape)}; gomhc.expand(x, {expected[0]}) makes streams of x (*batch, {expected[1]})"
            )
        return coefficients.read(streams)

    def write(self, state: State, branch_output: Tensor) -> Tensor:
        """Return the streams after the branch; see :meth:`read` for an example.

        Args:
            state: what :meth:`read` returned.
            branch_output: what the branch made of its input.

        Shape:
            - branch_output: (*batch, c)
            - returns: (*batch, d, c)
        """
        return self._pending(state, branch_output).written()

    def _pending(self, state: State, branch_output: Tensor) -> Pending:
        shape = state.streams.shape
        if branch_output.shape != shape[:-2] + shape[-1:]:
            raise ValueError(
                f"the branch must return the shape it is given, {(*shape[:-2], shape[-1])}, "
                f"got {tuple(branch_output.shape)}"
            )
        return Pending(state, branch_output)

    def _connect(self, streams: Tensor | Pending, *args: Any, **kwargs: Any) -> Any:
        if self.branch is None:
            raise ValueError("this connection has no branch; call read and write, or give it one")
        branch_input, state = self.read(streams)
        output = self.branch(branch_input, *args, **kwargs)
        pending = self._pending(state, output[0] if isinstance(output, tuple) else output)
        streams = pending if self.pending and not self.recompute else pending.written()
        return (streams, *output[1:]) if isinstance(output, tuple) else streams
