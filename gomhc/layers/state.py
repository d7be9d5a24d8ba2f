"""What a hyper-connection passes from its read to its write, and to the read of the next connection.

d = num_streams, c = channels of a stream
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gomhc import kernels
from gomhc.shapes import Float


class State(NamedTuple):
    """The streams and coefficients that `read` passes to `write`."""

    streams: Float[Tensor, "*batch d c"]
    write: Float[Tensor, "*#batch d"]
    mix: Float[Tensor, "*#batch d d"]


class Pending(NamedTuple):
    """Streams whose write is still pending: the next connection does it together with its own read, in one pass.

    Example::

        >>> first, second = gomhc.HyperConnection(None, dim=8), gomhc.HyperConnection(None, dim=8)
        >>> branch_input, state = first.read(torch.randn(2, 4, 8))
        >>> branch_input, state = second.read(gomhc.layers.Pending(state, torch.tanh(branch_input)))
        >>> streams = second.write(state, torch.tanh(branch_input))
    """

    state: State
    output: Float[Tensor, "*batch c"]
    """The output of the branch."""

    def written(self) -> Float[Tensor, "*batch d c"]:
        """Return the streams after the branch."""
        streams, weights, mix = self.state
        return kernels.write(streams, mix, weights, self.output)


def written(streams: Tensor | Pending) -> Tensor:
    """Return the streams, after a pending write."""
    return streams.written() if isinstance(streams, Pending) else streams
