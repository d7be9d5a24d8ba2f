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
from gomhc.kernels import plain_streams
from gomhc.kernels.precision import at_least_float32
from gomhc.shapes import Float

Start = Literal["mean-stream", "near-identity", "deepseek-v4"]
"""Initial values by name; see `Coefficients.reset_parameters`."""

INITIAL_SCALE = 0.01
"""a of the equations: how strongly the streams steer the coefficients at first (HC, mHC)."""
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
        layer_index: which connection of the network this is.
        read_offset: added to the read coefficients.
        norm_epsilon: added to the mean square of the streams.
        generator: draws the initial values.
        device: of the parameters.
        dtype: of the parameters.

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
        start: Start = "mean-stream",
        layer_index: int = 0,
        read_offset: float = 0.0,
        norm_epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if start not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(get_args(Start))}, got {start!r}")
        self.dim = dim
        self.mixing = as_mixing(mixing, num_streams)
        self.start = start
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

        `mean-stream`: reads are 1/d, writes differ between streams and average one, and the streams steer nothing yet.
        As `mix` has unit column sums, the mean over streams obeys the plain residual recursion: a network starts as its
        plain twin to rounding, while its streams differ and everything can learn.

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
        if self.start == "deepseek-v4":
            self.bias.zero_()
        else:
            mix.copy_(self.mixing.initial_logits(generator))
        if self.start == "mean-stream":
            read.copy_(torch.logit(torch.full((d,), 1 / d), eps=torch.finfo(torch.float32).eps))
            write.copy_(torch.linspace(WRITE_SPREAD, -WRITE_SPREAD, d) if d > 1 else torch.zeros(1))
        elif self.start == "near-identity":
            read.fill_(-1)
            read[self.layer_index % d] = 1
            write.zero_()
        if self.weight is None or self.scale is None:
            return
        self.scale.fill_(1 if self.start == "deepseek-v4" else INITIAL_SCALE)
        if self.start == "mean-stream":
            self.weight.zero_()
        else:
            self.weight.normal_(std=0.02, generator=generator)

    def forward(self, streams: Float[Tensor, "*batch d c"]) -> ReadWriteMix:
        return self.from_logits(self.logits(streams))

    def from_logits(self, logits: Float[Tensor, "*batch size"]) -> ReadWriteMix:
        """Return the coefficients that these logits mean, by equations 2 to 4."""
        read, write, mix_logits = plain_streams.coefficients(logits, self.mixing.num_streams, self.read_offset)
        return ReadWriteMix(read, write, self.mixing(mix_logits))

    def read(self, streams: Float[Tensor, "*batch d c"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the branch's input (*batch, c), and the write and mix coefficients, by the fast kernels."""
        if self.weight is None:
            read, write, mix = self(streams)
            return kernels.read_shared(streams, read), write, mix
        scale, bias = self._scale_and_bias(streams)
        branch_input, write, mix_logits = kernels.read(
            streams, self.weight, scale, bias, self.read_offset, self.norm_epsilon
        )
        return branch_input, write, self.mixing(mix_logits)

    def logits(self, streams: Float[Tensor, "*batch d c"]) -> Float[Tensor, "*#batch size"]:
        """Return the logits of read, write and mix; without batch where the coefficients are static."""
        if self.weight is None:
            return self.bias.to(at_least_float32(streams.dtype))
        scale, bias = self._scale_and_bias(streams)
        return plain_streams.steered_logits(streams, self.weight, scale, bias, self.norm_epsilon)

    def _scale_and_bias(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        assert self.scale is not None
        precision = at_least_float32(streams.dtype)
        scales = zip(self.scale.to(precision), self.sizes, strict=True)
        return torch.cat([value.expand(size) for value, size in scales]), self.bias.to(precision)

    def extra_repr(self) -> str:
        kind = "static" if self.weight is None else "dynamic"
        return f"{self.dim}, {self.mixing}, {kind}"
