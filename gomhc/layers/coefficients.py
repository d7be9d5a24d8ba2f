r"""Read, write and mix coefficients of a token: equations 2 to 4 of the paper as a module.

    read = sigmoid(a_r W_r x' + b_r),    write = 2 sigmoid(a_w W_w x' + b_w),    mix = P(a_m W_m x' + b_m)

x' = x / rms(x) is the token's streams, flattened and normed. `gomhc.kernels.plain_streams` has the equations; here are
their parameters and initial values. d = num_streams, c = channels of a stream, p = logits of the mixing P
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from gomhc import kernels
from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.checks import require_choice, require_number
from gomhc.kernels import plain_streams
from gomhc.kernels.precision import at_least_float32
from gomhc.layers.state import Pending, State
from gomhc.shapes import Float

TwinStart = Literal["mean-stream", "equal-streams"]
"""Starts with which a network computes the same as its plain residual twin at first."""
Start = Literal[TwinStart, "near-identity", "deepseek-v4"]
"""Initial values by name; see `Coefficients.reset_parameters`."""

DEFAULT_START: TwinStart = "equal-streams"
"""The default start of models and recipes, and of a connection that knows its index; the better one in our study."""
INITIAL_SCALE = 0.01
"""First value of the scales a of the equations (HC, mHC)."""
FAVOURED_READ = 0.7
"""Read coefficient of the stream that a connection favours in the equal-streams start; the others share the rest."""
WRITE_SPREAD = 1.0
"""In the mean-stream start, b_w goes from this value to its negative, so writes go from 1.46 to 0.54."""


class ReadWriteMix(NamedTuple):
    """Coefficients of each token, or one set for all tokens if they are static; at least float32."""

    read: Float[Tensor, "*batch d"]
    write: Float[Tensor, "*batch d"]
    mix: Float[Tensor, "*batch d d"]


class Coefficients(nn.Module):
    """Compute read, write and mix coefficients in at least float32, whatever the dtype of the streams and autocast.

    One matrix product computes all three. `weight` (2d + p, d c), `bias` (2d + p) and `scale` (3) are packed in the
    order read, write, mix, like `fn`, `base` and `scale` in DeepSeek-V4. The root mean square over all streams is
    applied after the projection, as one number per token. Static coefficients have only the bias.

    Args:
        dim: number of channels of a stream (c).
        mixing: how the streams are mixed, as for :class:`gomhc.HyperConnection`.
        num_streams: number of streams (d); by default that of `mixing`, or 4 if `mixing` is text.
        dynamic: whether coefficients are computed for each token; otherwise all tokens share the same ones.
        start: initial values, see :meth:`reset_parameters`.
        initial_scale: first value of the scales a of the equations; with the zero initial weights of `equal-streams`
            and `mean-stream`, it sets how fast the streams begin to steer the coefficients.
        layer_index: index of this connection in the network.
        read_offset: added to the read coefficients.
        norm_epsilon: added to the mean square of the streams.
        generator: random generator for the initial values.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Shape:
        - input: (*batch, d, c)
        - output: read (*batch, d), write (*batch, d) and mix (*batch, d, d); without batch if they are static

    Example::

        >>> coefficients = gomhc.layers.Coefficients(8, "go", num_streams=4)
        >>> read, write, mix = coefficients(torch.randn(2, 4, 8))
        >>> mix.shape
        torch.Size([2, 4, 4])
    """

    def __init__(
        self,
        dim: int,
        mixing: Parametrization | str = "go",
        num_streams: int | None = None,
        *,
        dynamic: bool = True,
        start: Start | None = None,
        initial_scale: float = INITIAL_SCALE,
        layer_index: int | None = None,
        read_offset: float = 0.0,
        norm_epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if start is None:  # without indices, all connections would favour the same stream
            start = "mean-stream" if layer_index is None else DEFAULT_START
        require_choice("start", start, get_args(Start))
        require_number("initial_scale", initial_scale)
        self.dim = dim
        self.mixing = as_mixing(mixing, num_streams)
        self.start = start
        self.initial_scale = initial_scale
        self.layer_index = layer_index or 0
        self.read_offset = read_offset
        self.norm_epsilon = norm_epsilon

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        size = sum(self.sizes)
        self.bias = parameter(size)
        self.weight = parameter(size, self.mixing.num_streams * dim) if dynamic else None
        self.scale = parameter(3) if dynamic else None
        self.reset_parameters(generator)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of logits of read, write and mix."""
        return self.mixing.num_streams, self.mixing.num_streams, self.mixing.num_logits

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the parameters to the initial values of `start`. On the meta device, this does nothing.

        With `mean-stream` and `equal-streams`, a network computes the same as its plain residual twin at first, to
        rounding, because every mixing of the library starts at a matrix with unit row and column sums. The weights of
        the readout must sum to one, as in the mean or :class:`gomhc.LearnedReadout`. The streams do not steer the
        coefficients yet, because all weights are zero.

        `mean-stream`: reads are 1/d, and writes differ between streams and average one. Because `mix` has unit column
        sums, the mean over streams follows the plain recursion, while the streams differ.

        `equal-streams`: a connection reads mostly its own stream (layer_index modulo d), reads sum to one, and every
        write is exactly one. Because `mix` has unit row sums, all streams stay equal to the plain network's stream,
        while their gradients differ.

        The table gives the step at which a coefficient gets its first gradient, if each branch starts with a norm:

        =================================  ===========  =============  ================================================
        coefficient                        mean-stream  equal-streams  why
        =================================  ===========  =============  ================================================
        read of the first connection       never        never          its streams are always equal
        read of the others                 1            2              streams must differ
        write                              1            1
        mix of the first                   never        never          its streams are equal, and its rows sum to one
        mix of those between               2            2              streams must differ, and so must their gradients
        mix of the last, mean of streams   never        never          the mean depends on column sums, which are one
        mix of the last, learned readout   2            2              the readout must have learned
        =================================  ===========  =============  ================================================

        A dynamic weight gets its first gradient at the same step as its bias. The scale gets it one step later, because
        the weight is zero at first.

        `near-identity`: as in HC and mHC. Each connection reads mostly its own stream (layer_index modulo d), all
        writes are one, and the weights are small and random.

        `deepseek-v4`: zero bias, unit scale and random weights, as transformers initializes that model. The bias gives
        reads of 1/2, writes of 1, and the mixing's matrix at zero logits.

        Args:
            generator: random generator; by default torch's global one.
        """
        if self.bias.is_meta:
            return
        d, precision = self.mixing.num_streams, at_least_float32(self.bias.dtype)
        read, write, mix = self.bias.split(self.sizes)
        self.bias.zero_()
        if self.start != "deepseek-v4":
            mix.copy_(self.mixing.initial_logits(generator))
        if self.start == "mean-stream":
            read.copy_(_logits_of_read(torch.full((d,), 1 / d, dtype=precision)))
            write.copy_(torch.linspace(WRITE_SPREAD, -WRITE_SPREAD, d, dtype=precision) if d > 1 else torch.zeros(1))
        elif self.start == "equal-streams":
            read.copy_(_logits_of_read(_favouring(self.layer_index % d, d, precision)))
        elif self.start == "near-identity":
            read.fill_(-1)
            read[self.layer_index % d] = 1
        if self.weight is None or self.scale is None:
            return
        self.scale.fill_(1 if self.start == "deepseek-v4" else self.initial_scale)
        if self.start in get_args(TwinStart):
            self.weight.zero_()
        else:
            self.weight.normal_(std=0.02, generator=generator)

    def forward(self, streams: Float[Tensor, "*batch d c"]) -> ReadWriteMix:
        return self.from_logits(self.logits(streams))

    def from_logits(self, logits: Float[Tensor, "*batch size"]) -> ReadWriteMix:
        """Return the coefficients for these logits, by equations 2 to 4."""
        read, write, mix_logits = plain_streams.coefficients(logits, self.mixing.num_streams, self.read_offset)
        return ReadWriteMix(read, write, self.mixing(mix_logits))

    def read(self, streams: Float[Tensor, "*batch d c"] | Pending) -> tuple[Tensor, State]:
        """Return the branch's input (*batch, c) and the state for writing its output, with the fast kernels."""
        before = None
        if isinstance(streams, Pending):
            (streams, write, mix), output = streams
            before = mix, write, output
        mixing = self.mixing
        streams, branch_input, write, mix = kernels.connect(
            *(streams, before, self.weight, self.scale, self.bias),
            *(self.read_offset, self.norm_epsilon, mixing.kernel, mixing),
        )
        return branch_input, State(streams, write, mix)

    def logits(self, streams: Float[Tensor, "*batch d c"]) -> Float[Tensor, "*#batch size"]:
        """Return the logits of read, write and mix; without batch if the coefficients are static."""
        if self.weight is None:
            return self.bias.to(at_least_float32(streams.dtype))
        assert self.scale is not None
        precision = at_least_float32(streams.dtype)
        scale = plain_streams.spread_scale(self.scale.to(precision), self.mixing.num_streams, len(self.bias))
        return plain_streams.steered_logits(streams, self.weight, scale, self.bias.to(precision), self.norm_epsilon)

    def extra_repr(self) -> str:
        kind = "static" if self.weight is None else "dynamic"
        return f"{self.dim}, {self.mixing}, {kind}"


def _logits_of_read(read: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """The logits whose sigmoid is `read`; a read of one, as a single stream has, becomes the largest that is finite."""
    return torch.logit(read, eps=torch.finfo(read.dtype).eps)


def _favouring(stream: int, num_streams: int, dtype: torch.dtype) -> Float[Tensor, " d"]:
    """Reads that sum to one and favour one stream; the others are read alike."""
    others = (1 - FAVOURED_READ) / max(1, num_streams - 1)
    read = torch.full((num_streams,), others, dtype=dtype)
    read[stream] = 1 - others * (num_streams - 1)
    return read
