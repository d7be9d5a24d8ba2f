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
from gomhc.layers.coefficients import INITIAL_SCALE, Coefficients, Start
from gomhc.layers.state import Pending, State, written


class HyperConnection(nn.Module):
    """Join a branch to d residual streams: mix them, and add the branch's output to each.

    The branch sees one stream (*batch, c), a weighted sum of all streams. Further arguments are passed to the branch.
    If the branch returns a tuple, its first element is written to the streams, and the others (caches, attention
    weights) are returned after the streams. To run code between reading and writing, call :meth:`read` and
    :meth:`write`; the branch may then be None.

    `mix` is applied as in the paper, out_i = sum_j mix_ij x_j. DeepSeek-V4 applies the transpose of its `comb`.

    Args:
        branch: module or function that maps (*batch, c) to (*batch, c), or None.
        dim: number of channels of a stream (c).
        mixing: how the streams are mixed: a :class:`gomhc.Parametrization`, or text. Text is a key of
            `gomhc.PARAMETRIZATIONS` or a name such as ``"mhc-lite"``, with options after a colon
            (``"go:expressivity=3"``).
        num_streams: number of streams (d); by default that of `mixing`, or 4 if `mixing` is text.
        dynamic: whether coefficients are computed for each token; otherwise all tokens share the same ones.
        start: initial values of the coefficients: ``"equal-streams"``, ``"mean-stream"``, ``"near-identity"`` or
            ``"deepseek-v4"``; by default ``"equal-streams"`` if `layer_index` is given, and ``"mean-stream"``
            otherwise. With these two, a network computes the same as its plain residual twin at first; see
            :meth:`reset_parameters` of `Coefficients`.
        initial_scale: first value of the scales a of equations 2 to 4; with the zero initial weights of `equal-streams`
            and `mean-stream`, it sets how fast the streams begin to steer the coefficients.
        layer_index: index of this connection in the network, from 0 on; ``"equal-streams"`` and
            ``"near-identity"`` favour stream `layer_index` modulo d, so that the connections of a network read
            different streams.
        recompute: whether to keep only the streams for backward, and compute the rest again, including the branch.
        pending: whether calling the connection returns a :class:`gomhc.layers.Pending` instead of streams. The next
            connection takes it in place of streams, and does this write and its own read in one pass. With
            `recompute`, the connection writes at once.
        read_offset: added to the read coefficients (`hc_eps` of DeepSeek-V4).
        norm_epsilon: added to the mean square of the streams.
        generator: random generator for the initial values.
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
        start: Start | None = None,
        initial_scale: float = INITIAL_SCALE,
        layer_index: int | None = None,
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
        """The parametrization of the mixing matrices."""
        return self.coefficients.mixing

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the coefficients to their initial values. The branch stays as it is.

        Args:
            generator: random generator; by default torch's global one.

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
            args: further arguments for the branch.
            kwargs: further keyword arguments for the branch.

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
        """Return the branch's input, and the state that :meth:`write` needs.

        Args:
            streams: the residual streams, or a :class:`gomhc.layers.Pending` of the previous connection.

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
                f"got {tuple(shape)}; gomhc.expand(x, {expected[0]}) makes streams from x (*batch, {expected[1]})"
            )
        return coefficients.read(streams)

    def write(self, state: State, branch_output: Tensor) -> Tensor:
        """Return the streams after the branch; see :meth:`read` for an example.

        Args:
            state: the state that :meth:`read` returned.
            branch_output: the output of the branch.

        Shape:
            - branch_output: (*batch, c)
            - returns: (*batch, d, c)
        """
        return self._pending(state, branch_output).written()

    def _pending(self, state: State, branch_output: Tensor) -> Pending:
        shape = state.streams.shape
        if branch_output.shape != shape[:-2] + shape[-1:]:
            raise ValueError(
                f"the branch must return the shape of its input, {(*shape[:-2], shape[-1])}, "
                f"got {tuple(branch_output.shape)}"
            )
        return Pending(state, branch_output)

    def _connect(self, streams: Tensor | Pending, *args: Any, **kwargs: Any) -> Any:
        if self.branch is None:
            raise ValueError("this connection has no branch; call read and write, or pass a branch when you create it")
        branch_input, state = self.read(streams)
        output = self.branch(branch_input, *args, **kwargs)
        pending = self._pending(state, output[0] if isinstance(output, tuple) else output)
        streams = pending if self.pending and not self.recompute else pending.written()
        return (streams, *output[1:]) if isinstance(output, tuple) else streams
