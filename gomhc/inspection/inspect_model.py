"""Inspection of a model on a text: one forward and one backward pass, watched and measured.

N = tokens of the text, d = num_streams, c = channels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gomhc.birkhoff import measures
from gomhc.inspection.inspection import Inspection
from gomhc.inspection.watch import Seen, watch
from gomhc.kernels.precision import widened
from gomhc.shapes import Float, Int


def inspect(
    model: nn.Module, tokens: Int[Tensor, "batch time"], attention_mask: Int[Tensor, "batch time"] | None = None
) -> Inspection:
    """Measure what each connection of a language model does on some tokens.

    The model runs in evaluation mode. Its weights and gradients do not change.

    Args:
        model: any model with hyper-connections of gomhc, or in DeepSeek-V4's form.
        tokens: the tokens that the model reads.
        attention_mask: zero for tokens that do not count (padding); None for models that take no mask, like our GPT.

    Shape:
        - tokens, attention_mask: (batch, time)

    Example::

        >>> config = gomhc.models.GPTConfig(num_layers=1, num_heads=2, num_channels=16, vocab_size=61, mixing="go")
        >>> inspection = gomhc.inspection.inspect(gomhc.models.GPT(config), torch.randint(61, (2, 11)))
        >>> inspection.names
        ('0 attention', '0 feed_forward')
    """
    if tokens.dim() != 2 or tokens.shape[-1] < 2:
        raise ValueError(
            f"tokens must have the shape (batch, time) with a time of at least two, got {tuple(tokens.shape)}"
        )
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    options = {} if attention_mask is None else {"attention_mask": attention_mask}
    with torch.enable_grad(), _ready(model), watch(model) as seen:
        output = model(tokens, **options)
        scores = output[0] if isinstance(output, tuple) else output.logits
        loss = _next_token_loss(scores, tokens, attention_mask)
        watched = [one.streams for one in seen] + [one.logits for one in seen]
        # Zeros for what the loss does not depend on, as the last mix where its matrix is the identity in any case.
        gradients = torch.autograd.grad(loss, watched, materialize_grads=True)
    counted = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    rows = [
        {**_measure(one, counted), **_gradients(one, at_streams, at_logits)}
        for one, at_streams, at_logits in zip(seen, gradients[: len(seen)], gradients[len(seen) :], strict=True)
    ]
    columns = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    mixes = torch.stack([_over_tokens(one.mix, one, counted) for one in seen], dim=1)
    return Inspection(
        names=tuple(one.name for one in seen),
        num_tokens=int(counted.sum()),
        loss=loss.item(),
        **columns,
        **_over_depth(mixes),
    )


def _next_token_loss(scores: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
    targets = tokens[:, 1:] if mask is None else tokens[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
    return F.cross_entropy(scores[:, :-1].float().flatten(0, 1), targets.flatten())


def _measure(seen: Seen, counted: Tensor) -> dict[str, Tensor]:
    """Measures of the streams and coefficients of one connection."""
    streams, read, write, mix = (
        _over_tokens(tensor, seen, counted) for tensor in (seen.streams, seen.read, seen.write, seen.mix)
    )
    mean = streams.mean(-2)
    away = (streams - mean[..., None, :]).square().sum(-1).mean(-1)
    unit = F.normalize(streams, dim=-1)
    return {
        "read_mean": read.mean(0),
        "read_spread": read.std(0, correction=0),
        "write_mean": write.mean(0),
        "write_spread": write.std(0, correction=0),
        "mix_mean": mix.mean(0),
        "mix_spread": mix.std(0, correction=0),
        "distance_to_identity": measures.distance_to_identity(mix).mean(),
        "entropy": _entropy(mix).mean(),
        "second_eigenvalue": measures.second_eigenvalue(mix).mean(),
        "marginal_error": measures.marginal_error(mix).amax(),
        "stream_similarity": (unit @ unit.mT).mean(0),
        "stream_spread": (away / mean.square().sum(-1).clamp(min=torch.finfo(mean.dtype).tiny)).mean().sqrt(),
    }


def _gradients(seen: Seen, at_streams: Tensor, at_logits: Tensor) -> dict[str, Tensor]:
    """How the loss depends on the streams and the coefficients of one connection."""
    power = widened(at_streams).square().sum(-1).flatten(0, -2).sum(0)
    norms = [widened(part).norm().cpu().double() for part in at_logits.split(seen.sizes, dim=-1)]
    return {
        "stream_gradient_share": (power / power.sum().clamp(min=torch.finfo(power.dtype).tiny)).cpu().double(),
        "coefficient_gradient": torch.stack(norms),
    }


def _over_depth(mixes: Float[Tensor, "N depth d d"]) -> dict[str, Tensor]:
    """Products of mixes: of those up to each connection, and of those from each connection on."""
    depth = mixes.shape[1]
    so_far = list(_products(mixes.unbind(1), lambda product, mix: mix @ product))
    from_here = list(_products(mixes.flip(1).unbind(1), lambda product, mix: product @ mix))[::-1]
    assert len(so_far) == depth
    return {
        "composite_second_eigenvalue": torch.stack([measures.second_eigenvalue(product).mean() for product in so_far]),
        "gain_forward": torch.stack([measures.amax_gain(product).forward.amax() for product in so_far]),
        "gain_backward": torch.stack([measures.amax_gain(product).backward.amax() for product in from_here]),
    }


def _products(matrices: tuple[Tensor, ...], join: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
    product = torch.eye(matrices[0].shape[-1], dtype=matrices[0].dtype).expand_as(matrices[0])
    for matrix in matrices:
        product = join(product, matrix)
        yield product


def _entropy(mix: Float[Tensor, "N d d"]) -> Float[Tensor, " N"]:
    """Mean entropy of the rows, each normalised to one, as a share of log d; zero for one stream."""
    rows = F.normalize(mix.abs(), p=1, dim=-1)
    return -torch.xlogy(rows, rows).sum(-1).mean(-1) / max(torch.tensor(float(mix.shape[-1])).log().item(), 1e-12)


def _over_tokens(tensor: Tensor, seen: Seen, counted: Tensor) -> Tensor:
    """(N, ...) in float64 on the CPU, of the tokens that count; coefficients that all tokens share are repeated."""
    own = tensor.shape[-2:] if tensor is seen.mix or tensor is seen.streams else tensor.shape[-1:]
    full = widened(tensor.detach()).expand(*counted.shape, *own)
    return full[counted].cpu().double()


@contextmanager
def _ready(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode and let gradients through frozen weights too; undo both afterwards."""
    training = {module: module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    frozen = [parameter for parameter in frozen if parameter.is_floating_point()]
    model.eval()
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for module, mode in training.items():
            module.training = mode
