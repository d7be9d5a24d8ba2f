"""Which modules are hyper-connections in DeepSeek-V4's form, and what are their coefficients in ours?

They are known by what they hold, `fn`, `base`, `scale` and `hc_sinkhorn_iters`, as in the models deepseek_v4 and
glm5_next of transformers, which is not needed here.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from gomhc.birkhoff import Sinkhorn
from gomhc.layers import Coefficients, HyperConnection

PARTS = ("fn", "base", "scale", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "input_norm")


def is_deepseek_v4(module: nn.Module) -> bool:
    """Whether it maps streams to (post, comb, collapsed), with Sinkhorn's iteration for comb."""
    return all(hasattr(module, name) for name in PARTS)


def sinkhorn_of(module: Any) -> Sinkhorn:
    """What makes its mixing matrices."""
    return Sinkhorn(num_streams=module.hc_mult, num_iterations=module.hc_sinkhorn_iters, epsilon=module.hc_eps)


def to_coefficients(module: Any) -> Coefficients:
    """Coefficients of our own that compute what this module computes; they are copies of its weights."""
    connection = HyperConnection.from_deepseek_v4(
        None,
        module.fn,
        module.base,
        module.scale,
        epsilon=module.hc_eps,
        num_iterations=module.hc_sinkhorn_iters,
        norm_epsilon=module.input_norm.eps,
    )
    return connection.coefficients
