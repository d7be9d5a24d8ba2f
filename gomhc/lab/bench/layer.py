r"""Time and memory of a whole hyper-connection around a branch that returns its input, forward and backward.

The roofline is what no layer can avoid: three matrix products and eight copies of the streams.
d = num_streams, c = channels of a stream, p = logits of go-mHC
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gomhc.birkhoff import PARAMETRIZATIONS, Orthostochastic, Parametrization
from gomhc.lab.bench.projection import with_kernels
from gomhc.lab.bench.timing import Benchmark, Contender, is_installed
from gomhc.layers import HyperConnection
from gomhc.shapes import Float

ROOFLINE = "roofline"
DEEPSEEK = "transformers, DeepSeek-V4"
LUCIDRAINS = "hyper-connections, HC"
LUCIDRAINS_MHC = "hyper-connections, mHC"
PEERS = {
    DEEPSEEK: "transformers.models.deepseek_v4.modeling_deepseek_v4",
    LUCIDRAINS: "hyper_connections",
    LUCIDRAINS_MHC: "hyper_connections",
}
"""Third-party implementation -> the module that it needs."""
GO = "go"
METHODS = (GO, "sinkhorn", "sinkhorn-v4", "kronecker", "transportation", "identity")
PERMUTATIONS = "permutations"
MOST_PERMUTED = 4
"""Maximum number of streams for which permutations are measured: there are d! of them."""


@dataclass(frozen=True, kw_only=True)
class Layer(Benchmark):
    """One hyper-connection around a branch that returns its input."""

    num_streams: int = 4
    """Number of residual streams (d)."""
    tokens: int = 4096
    """Number of tokens in a call."""
    num_channels: int = 384
    """Number of channels of a stream (c)."""

    title: ClassVar[str] = "One hyper-connection, forward and backward"
    references: ClassVar[tuple[str, ...]] = (ROOFLINE, GO, DEEPSEEK, LUCIDRAINS, LUCIDRAINS_MHC)

    def contenders(self) -> list[Contender]:
        methods = (*METHODS, PERMUTATIONS) if self.num_streams <= MOST_PERMUTED else METHODS
        mixings = {key: PARAMETRIZATIONS[key](num_streams=self.num_streams) for key in methods}
        ours = {key: self._connection(mixing) for key, mixing in mixings.items()}
        plain = {f"{key} (plain)": with_kernels("plain", run) for key, run in ours.items()}
        ours["go, bfloat16"] = self._connection(mixings[GO], dtype=torch.bfloat16)
        ours["go, float16"] = self._connection(mixings[GO], dtype=torch.float16)
        ours["go, static"] = self._connection(mixings[GO], dynamic=False)
        ours["go, static, bfloat16"] = self._connection(mixings[GO], dynamic=False, dtype=torch.bfloat16)
        makers = {DEEPSEEK: self._deepseek_v4, LUCIDRAINS: self._lucidrains, LUCIDRAINS_MHC: self._lucidrains_mhc}
        peers = {name: make() for name, make in makers.items() if is_installed(PEERS[name])}
        calls = {ROOFLINE: self._roofline(), **ours, **plain, **peers}
        sizes = {"d": self.num_streams, "c": self.num_channels, "tokens": self.tokens}
        return [Contender(name, sizes, run) for name, run in calls.items()]

    def remarks(self) -> list[str]:
        roofline = f"{ROOFLINE}: the three matrix products of go and eight copies of the streams"
        missing = [name for name in PEERS if not is_installed(PEERS[name])]
        return [
            roofline,
            "bfloat16, float16: the streams; coefficients are float32",
            *(f"not installed: {name}" for name in missing),
        ]

    def _streams(self) -> Float[Tensor, "tokens d c"]:
        return torch.randn(self.tokens, self.num_streams, self.num_channels, generator=torch.Generator().manual_seed(0))

    def _roofline(self) -> Callable[[], object]:
        go = Orthostochastic(num_streams=self.num_streams)
        x = self._streams().flatten(1)
        weight = torch.randn(2 * self.num_streams + go.num_logits, x.shape[1])
        gradient, copy = torch.randn(len(x), len(weight)), torch.empty_like(x)

        def run() -> None:
            x @ weight.mT, gradient @ weight, gradient.mT @ x
            for _ in range(8):
                copy.copy_(x)

        return run

    def _connection(
        self, parametrization: Parametrization, *, dynamic: bool = True, dtype: torch.dtype = torch.float32
    ) -> Callable[[], object]:
        layer = HyperConnection(
            lambda x: x,
            self.num_channels,
            parametrization,
            dynamic=dynamic,
            start="near-identity",  # coefficients depend on the streams, so that no gradient is zero
            generator=torch.Generator().manual_seed(0),
        )
        return forward_and_backward(layer, self._streams().to(dtype), layer.parameters())

    def _deepseek_v4(self) -> Callable[[], object]:
        """Hugging Face's module, with the residual update of its decoder layer."""
        modeling = import_module(PEERS[DEEPSEEK])
        config = modeling.DeepseekV4Config(hc_mult=self.num_streams, hidden_size=self.num_channels)
        module = modeling.DeepseekV4HyperConnection(config)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.02)

        def layer(x: Tensor) -> Tensor:
            post, comb, branch_input = module(x)
            return post.unsqueeze(-1) * branch_input.unsqueeze(-2) + comb.transpose(-1, -2) @ x

        return forward_and_backward(layer, self._streams()[None], module.parameters())

    def _lucidrains(self) -> Callable[[], object]:
        return self._lucidrains_layer("get_init_and_expand_reduce_stream_functions")

    def _lucidrains_mhc(self) -> Callable[[], object]:
        return self._lucidrains_layer("mc_get_init_and_expand_reduce_stream_functions")

    def _lucidrains_layer(self, maker: str) -> Callable[[], object]:
        """The package hyper-connections; its shape is (batch * d, tokens, c)."""
        make, _, _ = getattr(import_module(PEERS[LUCIDRAINS]), maker)(self.num_streams)
        layer = make(dim=self.num_channels, branch=nn.Identity(), layer_index=0)
        return forward_and_backward(layer, self._streams().transpose(0, 1).contiguous(), layer.parameters())


def forward_and_backward(
    layer: Callable[[Tensor], Any], streams: Tensor, parameters: Iterable[Tensor]
) -> Callable[[], object]:
    """Return a function that computes all gradients from a random cotangent."""
    cotangent = torch.randn(streams.shape, generator=torch.Generator().manual_seed(1)).to(streams)
    leaves = (streams.requires_grad_(), *parameters)

    def run() -> None:
        torch.autograd.grad(layer(streams), leaves, cotangent, allow_unused=True)

    return run
