"""A GPT with one residual stream or several: the paper's language model, nanoGPT-sized.

c = num_channels, d = streams of the mixing
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gomhc.birkhoff import Parametrization, as_mixing
from gomhc.birkhoff.parametrization import LEAST_LEAK
from gomhc.checks import require_choice, require_number, require_whole
from gomhc.layers import (
    DEFAULT_START,
    INITIAL_SCALE,
    Coefficients,
    FracConnection,
    HyperConnection,
    LearnedReadout,
    Pending,
    Residual,
    Start,
    expand,
    readout,
    written,
)
from gomhc.shapes import Float, Int

Cache = tuple[Tensor, Tensor]
"""Keys and values of one attention, (batch, heads, time, c / heads) each."""


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Sizes and mixing of a :class:`GPT`. The defaults are the paper's model of 30M parameters, with one stream.

    Args:
        num_layers: number of blocks, each with attention and a feed-forward network.
        num_heads: number of attention heads, which must divide num_channels.
        num_channels: number of channels of a stream (c).
        hidden_channels: width of the hidden layer of a feed-forward network; by default 4c.
        context_length: maximum number of tokens that attention sees.
        vocab_size: number of different tokens; the default is GPT-2's.
        dropout: dropout probability in training.
        mixing: how the residual streams are mixed, a value or text; None for one plain stream.
        num_streams: number of residual streams (d); by default that of the mixing, or 4 if the mixing is text.
        num_fractions: number of parts into which the channels of one plain stream are split
            (:class:`gomhc.FracConnection`).
        readout: how the streams are reduced to one before the last norm: ``"mean"``, ``"sum"`` or ``"learned"``.
        dynamic: whether coefficients are computed for each token; otherwise all tokens share the same ones.
        start: initial values of the coefficients, as for :class:`gomhc.HyperConnection`.
        initial_scale: first value of the scales of the coefficients: how fast the streams begin to steer them.
        total_leak: initial leak of all connections together, divided equally among them; with None, each has the
            `initial_leak` of the mixing, so a deeper network leaks more.
        recompute: whether backward computes the connections and their branches again, instead of keeping activations.

    Example::

        >>> gomhc.models.GPTConfig(mixing="go").num_parameters - gomhc.models.GPTConfig().num_parameters
        664020
    """

    num_layers: int = 6
    """Number of blocks, each with attention and a feed-forward network."""
    num_heads: int = 6
    """Number of attention heads, which must divide num_channels."""
    num_channels: int = 384
    """Number of channels of a stream (c)."""
    hidden_channels: int | None = None
    """Width of the hidden layer of a feed-forward network; by default 4c."""
    context_length: int = 512
    """Maximum number of tokens that attention sees."""
    vocab_size: int = 50257
    """Number of different tokens; the default is GPT-2's."""
    dropout: float = 0.0
    """Dropout probability in training."""
    mixing: Parametrization | str | None = None
    """How the residual streams are mixed, a value or text (which is resolved to a value); None for one plain stream."""
    num_streams: int | None = None
    """Number of residual streams (d); by default that of the mixing, or 4 if the mixing is text."""
    num_fractions: int = 1
    """Number of parts into which the channels of one plain stream are split (Frac-Connections)."""
    readout: Literal["mean", "sum", "learned"] = "mean"
    """How the streams are reduced to one before the last norm."""
    dynamic: bool = True
    """Whether coefficients are computed for each token; otherwise all tokens share the same ones."""
    start: Start = DEFAULT_START
    """Initial values of the coefficients."""
    initial_scale: float = INITIAL_SCALE
    """First value of the scales of the coefficients: how fast the streams begin to steer them."""
    total_leak: float | None = None
    """Initial leak of all connections together, divided equally among them; with None, each has that of the mixing."""
    recompute: bool = False
    """Whether backward computes the connections and their branches again, instead of keeping activations."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_heads", "num_channels", "context_length", "vocab_size"):
            require_whole(name, getattr(self, name), 1)
        if self.num_channels % self.num_heads != 0:
            raise ValueError(f"num_channels must be a multiple of num_heads={self.num_heads}, got {self.num_channels}")
        require_number("dropout", self.dropout, least=0, below=1)
        require_choice("readout", self.readout, ("mean", "sum", "learned"))
        require_choice("start", self.start, get_args(Start))
        for name in ("hidden_channels", "num_streams"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1)
        require_number("initial_scale", self.initial_scale)
        if self.total_leak is not None:
            # of each connection, at least the least leak of a mixing and at most a half
            require_number("total_leak", self.total_leak, least=2 * self.num_layers * LEAST_LEAK, most=self.num_layers)
        require_whole("num_fractions", self.num_fractions, 1)
        if self.num_channels % self.num_fractions != 0:
            raise ValueError(f"num_fractions must divide num_channels={self.num_channels}, got {self.num_fractions}")
        if self.num_fractions > 1 and self.mixing is not None:
            raise ValueError(f"num_fractions={self.num_fractions} splits one plain stream; leave the mixing out")
        if self.mixing is not None:
            mixing = as_mixing(self.mixing, self.num_streams)
            if self.total_leak is not None:
                mixing = replace(mixing, initial_leak=self.total_leak / (2 * self.num_layers))
            object.__setattr__(self, "mixing", mixing)

    @property
    def parametrization(self) -> Parametrization | None:
        """The resolved mixing, or None for one plain stream."""
        assert not isinstance(self.mixing, str)
        return self.mixing

    @property
    def feed_forward_width(self) -> int:
        """Width of the hidden layer of a feed-forward network."""
        return 4 * self.num_channels if self.hidden_channels is None else self.hidden_channels

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model, counted without building it."""
        c, mixing = self.num_channels, self.parametrization
        block = (4 * c + 9) * c + self.feed_forward_width * (2 * c + 1)
        plain = (self.vocab_size + self.context_length + 2) * c + self.num_layers * block
        if mixing is None:
            m = self.num_fractions
            fraction = (2 * m + 1) * m + ((2 * m + 1) * (c // m) + 3) * self.dynamic
            return plain + 2 * self.num_layers * fraction * (m > 1)
        d = mixing.num_streams
        connection = mixing.num_parameters(c) if self.dynamic else 2 * d + mixing.num_logits
        readout = d * d * c + d + 1 if self.readout == "learned" else 0
        return plain + 2 * self.num_layers * connection + readout


class Attention(nn.Module):
    """Causal self-attention behind its norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        c = config.num_channels
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        self.norm = nn.LayerNorm(c)
        self.query_key_value = nn.Linear(c, 3 * c)
        self.out = nn.Linear(c, c)

    def forward(self, x: Float[Tensor, "batch time c"], cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Return what the tokens attend to, and all keys and values so far; `cache` holds those of earlier tokens."""
        qkv = self.query_key_value(self.norm(x)).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = qkv.movedim(-3, 0).transpose(-3, -2)
        if cache is not None:
            key, value = torch.cat((cache[0], key), dim=-2), torch.cat((cache[1], value), dim=-2)
        # One new token may see everything; several are the start of a text, or its mask would have to be built.
        assert cache is None or x.shape[-2] == 1
        dropout = self.dropout if self.training else 0.0
        gathered = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=cache is None)
        out = self.out(gathered.transpose(-3, -2).flatten(-2))
        return F.dropout(out, self.dropout, self.training), (key, value)


class FeedForward(nn.Module):
    """Two layers with a GELU between, behind their norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        c = config.num_channels
        self.dropout = config.dropout
        self.norm = nn.LayerNorm(c)
        self.up = nn.Linear(c, config.feed_forward_width)
        self.out = nn.Linear(config.feed_forward_width, c)

    def forward(self, x: Float[Tensor, "batch time c"]) -> Float[Tensor, "batch time c"]:
        return F.dropout(self.out(F.gelu(self.up(self.norm(x)))), self.dropout, self.training)


class Block(nn.Module):
    """Attention, then a feed-forward network, each joined to the residual stream or streams."""

    def __init__(self, config: GPTConfig, layer_index: int) -> None:
        super().__init__()

        def connect(branch: nn.Module, index: int) -> nn.Module:
            if config.num_fractions > 1:
                return FracConnection(branch, config.num_channels, config.num_fractions, dynamic=config.dynamic)
            if config.parametrization is None:
                return Residual(branch)
            return HyperConnection(
                branch,
                config.num_channels,
                config.parametrization,
                dynamic=config.dynamic,
                start=config.start,
                initial_scale=config.initial_scale,
                layer_index=index,
                recompute=config.recompute,
                pending=True,
            )

        self.attention = connect(Attention(config), 2 * layer_index)
        self.feed_forward = connect(FeedForward(config), 2 * layer_index + 1)

    def forward(self, x: Tensor | Pending, cache: Cache | None) -> tuple[Tensor | Pending, Cache]:
        x, cache = self.attention(x, cache)
        return self.feed_forward(x), cache


class GPT(nn.Module):
    """A GPT-2 with one residual stream or several, and tied embeddings.

    With the default start, a model with streams computes the same function at first as the plain model with the same
    weights, which `load_state_dict(plain.state_dict(), strict=False)` loads.

    Args:
        config: sizes and mixing of the model.
        generator: random generator for the initial values; by default torch's global one.

    Shape:
        - input: tokens (batch, time), and targets (batch, time) or None
        - output: logits (batch, time, vocab), and the mean cross-entropy, or None without targets

    Example::

        >>> config = gomhc.models.GPTConfig(num_layers=1, num_heads=2, num_channels=16, vocab_size=61, mixing="go")
        >>> model = gomhc.models.GPT(config)
        >>> logits, loss = model(torch.zeros(1, 8, dtype=torch.long))
        >>> logits.shape
        torch.Size([1, 8, 61])
    """

    def __init__(self, config: GPTConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.num_channels)
        self.positions = nn.Embedding(config.context_length, config.num_channels)
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.num_layers))
        self.readout: nn.Module | None = None
        if config.parametrization is not None and config.readout == "learned":
            self.readout = LearnedReadout(config.num_channels, config.parametrization.num_streams)
        self.norm = nn.LayerNorm(config.num_channels)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set all parameters to their initial values: coefficients as `config.start` says, the others as in GPT-2.

        GPT-2 draws weights with a standard deviation of 0.02, which is smaller in deep networks for the weights that
        write to the residual stream, and sets biases to zero. Coefficients are drawn last, so that with the same seed
        the plain network and every network with streams get the same weights.

        Args:
            generator: random generator; by default torch's global one.
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                depth = (2 * self.config.num_layers) ** 0.5 if name.endswith("branch.out") else 1
                module.weight.normal_(std=0.02 / depth, generator=generator)
            if isinstance(module, nn.Linear):
                module.bias.zero_()
            if isinstance(module, LearnedReadout | FracConnection | nn.LayerNorm):
                module.reset_parameters()
        for module in self.modules():
            if isinstance(module, Coefficients):
                module.reset_parameters(generator)

    def forward(
        self, tokens: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, ""] | None]:
        """Return logits of the next token at every position, and their mean cross-entropy, ignoring targets of -1."""
        logits, _ = self._logits(tokens, None)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    @torch.no_grad()
    def stream(
        self,
        tokens: Int[Tensor, "batch time"],
        num_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Int[Tensor, "batch 1"]]:
        """Yield the next token, `num_tokens` times; temperature 0 takes the most likely token.

        Keys and values are cached until the text is longer than the context. After that, each step reads the last
        `context_length` tokens again.
        """
        if tokens.shape[-1] == 0:
            raise ValueError("tokens must hold at least one token to continue from, got none")
        require_whole("num_tokens", num_tokens, 0)
        require_number("temperature", temperature, least=0)
        if top_k is not None:
            require_whole("top_k", top_k, 1)
        caches: list[Cache] | None = None
        for _ in range(num_tokens):
            fits = tokens.shape[-1] <= self.config.context_length
            cached = fits and caches is not None
            window = tokens[:, -1:] if cached else tokens[:, -self.config.context_length :]
            logits, caches = self._logits(window, caches if cached else None)
            token = _choose(logits[:, -1], temperature, top_k, generator)
            tokens = torch.cat((tokens, token), dim=-1)
            yield token

    def generate(self, tokens: Int[Tensor, "batch time"], num_tokens: int, **options: Any) -> Int[Tensor, "batch all"]:
        """Return the tokens followed by `num_tokens` more; the options are those of `stream`."""
        return torch.cat((tokens, *self.stream(tokens, num_tokens, **options)), dim=-1)

    def _logits(self, tokens: Tensor, caches: list[Cache] | None) -> tuple[Tensor, list[Cache]]:
        past = 0 if caches is None else caches[0][0].shape[-2]
        length, most = past + tokens.shape[-1], self.config.context_length
        if length > most:
            raise ValueError(f"at most context_length={most} tokens fit, got {length}; shorten the text")
        places = torch.arange(past, length, device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        x = F.dropout(x, self.config.dropout, self.training)
        if self.config.parametrization is not None:
            x = expand(x, self.config.parametrization.num_streams)
        new_caches = []
        for index, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[index])
            new_caches.append(cache)
        return F.linear(self.norm(self._read_out(written(x))), self.tokens.weight), new_caches

    def _read_out(self, x: Tensor) -> Tensor:
        if self.config.parametrization is None:
            return x
        if self.readout is not None:
            return self.readout(x)
        return readout(x, "sum" if self.config.readout == "sum" else "mean")


def _choose(
    logits: Float[Tensor, "batch vocab"], temperature: float, top_k: int | None, generator: torch.Generator | None
) -> Int[Tensor, "batch 1"]:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if top_k is not None:
        lowest = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < lowest, -torch.inf)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
