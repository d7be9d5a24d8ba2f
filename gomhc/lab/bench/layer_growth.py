"""Time of a hyper-connection over the number of streams, forward and backward.

d = num_streams, s = expressivity, c = channels of a stream
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from gomhc.birkhoff import Identity, Kronecker, Orthostochastic, Parametrization
from gomhc.integrations.deepseek_v4 import SinkhornV4
from gomhc.lab.bench.layer import forward_and_backward
from gomhc.lab.bench.operations import FACTORS, PRODUCT_OF_GO
from gomhc.lab.bench.projection import STREAMS
from gomhc.lab.bench.timing import Benchmark, Contender
from gomhc.layers import HyperConnection

FEWEST_TOKENS, MOST_TOKENS = 64, 4096


@dataclass(frozen=True, kw_only=True)
class LayerGrowth(Benchmark):
    """One hyper-connection with 1 to 64 streams; with more streams, a call has fewer tokens."""

    num_channels: int = 128
    """Number of channels of a stream (c)."""
    tokens: int = MOST_TOKENS
    """Number of tokens in a call with up to four streams; with more (d), 16/d² times as many, but at least 64."""

    title: ClassVar[str] = "A hyper-connection over the number of streams, forward and backward"
    references: ClassVar[tuple[str, ...]] = (Orthostochastic.key,)

    def contenders(self) -> list[Contender]:
        return [contender for d in STREAMS for contender in self._of_size(d)]

    def _of_size(self, d: int) -> Iterator[Contender]:
        tokens = min(self.tokens, max(FEWEST_TOKENS, 16 * self.tokens // d**2))
        generator = torch.Generator().manual_seed(0)
        streams = torch.randn(tokens, d, self.num_channels, generator=generator)
        for name, mixing in mixings(d).items():
            layer = HyperConnection(
                lambda x: x, self.num_channels, mixing, start="near-identity", generator=generator.manual_seed(0)
            )
            sizes = {"d": d, "c": self.num_channels, "tokens": tokens}
            yield Contender(name, sizes, forward_and_backward(layer, streams.clone(), layer.parameters()))


def mixings(d: int) -> dict[str, Parametrization]:
    """Name of a method -> its mixing of d streams; the product of two go-mHC from 16 streams on."""
    chosen: dict[str, Parametrization] = {
        cls.key: cls(num_streams=d) for cls in (Orthostochastic, SinkhornV4, Identity)
    }
    if d in FACTORS:
        factors = tuple(Orthostochastic(num_streams=factor) for factor in FACTORS[d])
        chosen[PRODUCT_OF_GO] = Kronecker(num_streams=d, factors=factors)
    return chosen
