"""The result of an inspection: numbers for every connection, in the order of the forward pass.

depth = number of connections, d = num_streams
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from gomhc.shapes import Float


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Measures of every connection, along the first dimension. Spreads are standard deviations over tokens."""

    names: tuple[str, ...]
    """Name of each connection: its layer and its branch."""
    num_tokens: int
    """Number of tokens over which means are taken."""
    loss: float
    """Mean cross-entropy of the next token, in nats; the gradients are those of this loss."""

    read_mean: Float[Tensor, "depth d"]
    """Weight of each stream in the branch's input."""
    read_spread: Float[Tensor, "depth d"]
    write_mean: Float[Tensor, "depth d"]
    """Weight of the branch's output in each stream."""
    write_spread: Float[Tensor, "depth d"]
    mix_mean: Float[Tensor, "depth d d"]
    """Weight of each old stream (column) in each new stream (row)."""
    mix_spread: Float[Tensor, "depth d d"]

    distance_to_identity: Float[Tensor, " depth"]
    """||mix - I||_F, mean over tokens; zero means that streams are not mixed."""
    entropy: Float[Tensor, " depth"]
    """Mean entropy of the rows of |mix| over tokens, as a share of log d: 0 for a permutation, 1 if uniform."""
    second_eigenvalue: Float[Tensor, " depth"]
    """Second largest modulus of an eigenvalue of mix, mean over tokens; 1 keeps streams apart, 0 makes them one."""
    composite_second_eigenvalue: Float[Tensor, " depth"]
    """The same for mix_l ... mix_1, the product of all mixes so far: how much of the streams' differences is left."""
    gain_forward: Float[Tensor, " depth"]
    """Largest absolute row sum of mix_l ... mix_1 over all tokens: amplification of a signal up to this connection."""
    gain_backward: Float[Tensor, " depth"]
    """Largest absolute column sum of mix_L ... mix_l over all tokens: amplification of a gradient down to this one."""
    marginal_error: Float[Tensor, " depth"]
    """Largest distance of a row or column sum of mix from one, over all tokens."""

    stream_similarity: Float[Tensor, "depth d d"]
    """Cosine between the input streams, mean over tokens; all ones if they have collapsed into one."""
    stream_spread: Float[Tensor, " depth"]
    """Distance of the input streams from their mean, root mean square, relative to the norm of the mean."""

    stream_gradient_share: Float[Tensor, "depth d"]
    """Share of each input stream in ||dloss/dstreams||^2, over all tokens."""
    coefficient_gradient: Float[Tensor, "depth 3"]
    """||dloss/dlogits|| of read, write and mix, over all tokens; zero means that they cannot learn from this text."""

    @property
    def num_streams(self) -> int:
        """Number of streams (d)."""
        return self.read_mean.shape[-1]

    @property
    def similarity(self) -> Float[Tensor, " depth"]:
        """Mean cosine between two different input streams; one if there is only one stream."""
        d = self.num_streams
        if d == 1:
            return self.stream_similarity[:, 0, 0]
        total, same = self.stream_similarity.sum((-2, -1)), self.stream_similarity.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (total - same) / (d * (d - 1))

    def summary(self) -> dict[str, float]:
        """Return thirteen numbers for the whole model, for a log."""
        return {
            "streams/similarity": self.similarity[-1].item(),
            "streams/spread": self.stream_spread[-1].item(),
            "streams/largest_gradient_share": self.stream_gradient_share.amax(-1).mean().item(),
            "mix/distance_to_identity": self.distance_to_identity.mean().item(),
            "mix/entropy": self.entropy.mean().item(),
            "mix/second_eigenvalue": self.second_eigenvalue.mean().item(),
            "mix/composite_second_eigenvalue": self.composite_second_eigenvalue[-1].item(),
            "mix/gain_forward": self.gain_forward.amax().item(),
            "mix/gain_backward": self.gain_backward.amax().item(),
            "mix/marginal_error": self.marginal_error.amax().item(),
            "gradient/read": self.coefficient_gradient[:, 0].norm().item(),
            "gradient/write": self.coefficient_gradient[:, 1].norm().item(),
            "gradient/mix": self.coefficient_gradient[:, 2].norm().item(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the summary as plain data for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}
        return {**plain, "names": list(self.names), "summary": self.summary()}
