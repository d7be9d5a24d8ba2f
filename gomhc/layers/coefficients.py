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
"""Initial values with which a network computes at first what its plain residual twin does."""
Start = Literal[TwinStart, "near-identity", "deepseek-v4"]
"""Initial values by name; see `Coefficients.reset_parameters`."""

DEFAULT_START: TwinStart = "mean-stream"
"""Start of layers, models and recipes that name none."""
INITIAL_SCALE = 0.01
"""a of the equations: how strongly the streams steer the coefficients at first (HC, mHC)."""
FAVOURED_READ = 0.7
"""Read of the one stream that a connection favours in the equal-streams start; the others share the rest."""
WRITE_SPREAD = 1.0
"""b_w of the mean-stream start goes from this to its negative, so writes go from 1.46 to 0.54."""


class ReadWriteMix(NamedTuple):
    """Coefficients of each token, or of all tokens where they are static; float32 at least."""

    read: Float[Tensor, "*batch d"]
    write: Float[Tensor, "*batch d"]
    mix: Float[Tensor, "*batch d d"]


class Coefficients(nn.Module):
    """Coefficients in float32, whatever the dtype of the streams and whatever autocast says.

    All three come from one matrix product. `weight` (2d + p, d c), `bias` (2d + p) and `scale` (3) are packed in the
    order read, write, mix, as `fn`, `base` and `scale` are in DeepSeek-V4. The root mean square over all streams is
    applied after the projection, as one number a token. Static coefficients have the bias alone.

    Args:
        dim: channels of a stream (c).
        mixing: what mixes the streams, as for :class:`gomhc.HyperConnection`.
        num_streams: d; by default that of `mixing`, or 4 where it is text.
        dynamic: whether each token steers its own coefficients, or all tokens share them.
        start: initial values, see :meth:`reset_parameters`.
        initial_scale: how strongly the streams steer the coefficients at first (a of the equations).
        layer_index: which connection of the network this is.
        read_offset: added to the read coefficients.
        norm_epsilon: added to the mean square of the streams.
        generator: draws the initial values.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Shape:
        - input: (*batch, d, c)
        - output: read (*batch, d), write (*batch, d) and mix (*batch, d, d); without batch where they are static

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
        start: Start = DEFAULT_START,
        initial_scale: float = INITIAL_SCALE,
        layer_index: int = 0,
        read_offset: float = 0.0,
        norm_epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_choice("start", start, get_args(Start))
        require_number("initial_scale", initial_scale)
        self.dim = dim
        self.mixing = as_mixing(mixing, num_streams)
        self.start = start
        self.initial_scale = initial_scale
        self.layer_index = layer_index
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
        """Set the parameters to the initial values that `start` names; on the meta device there are none to set.

        With the first two, a network starts as its plain residual twin to rounding, as every mixing of the library
        starts at a matrix with unit row and column sums. Its readout must be weights that sum to one: the mean, or
        :class:`gomhc.LearnedReadout`. The streams steer nothing yet: all weights are zero.

        `mean-stream`: reads are 1/d, and writes differ between streams and average one. As `mix` has unit column sums,
        the mean over streams obeys the plain recursion, while the streams differ.

        `equal-streams`: a connection reads mostly its own stream (layer_index modulo d), reads sum to one, and every
        write is exactly one. As `mix` has unit row sums, all streams stay equal to the plain network's, while their
        gradients differ.

        Step at which a coefficient gets its first gradient, behind a norm that leaves the branch no scale to see:

        =================================  ===========  =============  ================================================
        coefficient                        mean-stream  equal-streams  why
        =================================  ===========  =============  ================================================
        read of the first connection       never        never          its streams are equal, whatever was learned
        read of the others                 1            2              streams must differ
        write                              1            1
        mix of the first                   never        never          its streams are equal, and its rows sum to one
        mix of those between               2            2              streams must differ, and so must their gradients
        mix of the last, mean of streams   never        never          a mean sees column sums alone, which are one
        mix of the last, learned readout   2            2              the readout must have learned
        =================================  ===========  =============  ================================================

        A dynamic weight gets its gradient together with its bias, and the scale one step after its weight, which is
        zero at first.

        `near-identity`: as in HC and mHC. Each connection reads mostly its own stream (layer_index modulo d), writes
        one to all, and small random weights steer.

        `deepseek-v4`: zero bias, unit scale and random weights, as transformers initialises that model. Its static part
        gives reads 1/2, writes 1, and the mixing's matrix at zero logits.

        Args:
            generator: draws the random values; by default torch's global one.
        """
        if self.bias.is_meta:
            return
        d = self.mixing.num_streams
        read, write, mix = self.bias.split(self.sizes)
        self.bias.zero_()
        if self.start != "deepseek-v4":
            mix.copy_(self.mixing.initial_logits(generator))
        if self.start == "mean-stream":
            read.copy_(_logits_of_read(torch.full((d,), 1 / d)))
            write.copy_(torch.linspace(WRITE_SPREAD, -WRITE_SPREAD, d) if d > 1 else torch.zeros(1))
        elif self.start == "equal-streams":
            read.copy_(_logits_of_read(_favouring(self.layer_index % d, d)))
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
        """Return the coefficients that these logits mean, by equations 2 to 4."""
        read, write, mix_logits = plain_streams.coefficients(logits, self.mixing.num_streams, self.read_offset)
        return ReadWriteMix(read, write, self.mixing(mix_logits))

    def read(self, streams: Float[Tensor, "*batch d c"] | Pending) -> tuple[Tensor, State]:
        """Return the branch's input (*batch, c), and what is needed to write its output, by the fast kernels."""
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
        """Return the logits of read, write and mix; without batch where the coefficients are static."""
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
    return torch.logit(read, eps=torch.finfo(torch.float32).eps)


def _favouring(stream: int, num_streams: int) -> Float[Tensor, " d"]:
    """Reads that sum to one and favour one stream; the others are read alike."""
    others = (1 - FAVOURED_READ) / max(1, num_streams - 1)
    read = torch.full((num_streams,), others)
    read[stream] = 1 - others * (num_streams - 1)
    return read
