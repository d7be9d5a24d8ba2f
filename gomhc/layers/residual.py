"""The plain residual connection, with the interface of a hyper-connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """Add the output of a branch to its input, x <- x + F(x).

    It has the interface of :class:`gomhc.HyperConnection`, so a model can use either.

    Args:
        branch: maps x to a tensor of the same shape, or to a tuple that begins with one.

    Shape:
        - input: any shape
        - output: the shape of the input, followed by whatever else the branch returned

    Example::

        >>> gomhc.Residual(nn.Linear(8, 8))(torch.randn(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, branch: Callable[..., Any]) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the sum, followed by whatever else the branch returned."""
        output = self.branch(x, *args, **kwargs)
        if isinstance(output, tuple):
            return x + output[0], *output[1:]
        return x + output
