"""The plain residual connection, in the shape of a hyper-connection: what networks of one stream are built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """x <- x + F(x). Called as `HyperConnection` is, so that a model can have either."""

    def __init__(self, branch: Callable[..., Any]) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The sum, followed by whatever else the branch returned."""
        output = self.branch(x, *args, **kwargs)
        if isinstance(output, tuple):
            return x + output[0], *output[1:]
        return x + output
