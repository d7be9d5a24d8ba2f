"""A mixing of your own: one class. Everything that takes a mixing accepts its key.

GOMHC_PLUGINS=examples/own_mixing.py gomhc train --mixing lazy
GOMHC_PLUGINS=examples/own_mixing.py pytest tests/birkhoff -k lazy      # the tests of the registry
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

import gomhc


@gomhc.register
@dataclass(frozen=True, kw_only=True)
class Lazy(gomhc.Parametrization):
    """B = w I + (1 - w) J / d with w = sigmoid(z): each stream keeps a share, and all share the rest."""

    key: ClassVar[str] = "lazy"
    names: ClassVar = {"lazy-walk": {"initial_leak": 0.2}}

    @property
    def num_logits(self):
        return 1

    def matrix(self, logits):
        d = self.num_streams
        kept = logits.sigmoid()[..., None]
        identity = torch.eye(d, dtype=logits.dtype, device=logits.device)
        return kept * identity + (1 - kept) / d


if __name__ == "__main__":
    lazy = Lazy(num_streams=4)
    print(lazy(lazy.initial_logits()))
    fit = lazy.fit(torch.full((4, 4), 0.25))  # a search: `closest_logits` would give the inverse in closed form
    print(f"the uniform matrix is {fit.distance:.1e} away")
    streams = gomhc.HyperConnection(torch.nn.Linear(8, 8), dim=8, mixing="lazy")(torch.randn(2, 4, 8))
    assert streams.shape == (2, 4, 8)
