"""What do the streams of a model do on a text? One forward and one backward pass, watched.

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
from gomhc.shapes import Float, Int


def inspect(
    model: nn.Module, tokens: Int[Tensor, "batch time"], attention_mask: Int[Tensor, "batch time"] | None = None
) -> Inspection:
    """What each connection of a language model does on these tokens.

    The model is in evaluation mode meanwhile; no weight and no gradient of it changes. Tokens that `attention_mask`
    leaves out (padding) do not count; models that take none, as our GPT, are given none.
    """
    if tokens.dim() != 2 or tokens.shape[-1] < 2:
        raise ValueError(f"expected tokens (batch, time) with at least two of them, got shape {tuple(tokens.shape)}")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    options = {} if attention_mask is None else {"attention_mask": attention_mask}
    with torch.enable_grad(), _ready(model), watch(model) as seen:
        output = model(tokens, **options)
        scores = output[0] if isinstance(output, tuple) else output.logits
        loss = _next_token_loss(scores, tokens, attention_mask)
        wanted = [tensor for found in seen for tensor in (found.streams, *found.logits)]
        gradients = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
    counted = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    # An unused tensor has no gradient, and is the last mix's where its matrix is the identity, whatever the logits.
    rows = [_measure(found, [next(gradients) for _ in range(4)], counted) for found in seen]
    columns = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    mixes = torch.stack([_over_tokens(found.mix, found, counted) for found in seen], dim=1)
    return Inspection(
        names=tuple(found.name for found in seen),
        num_tokens=int(counted.sum()),
        loss=loss.item(),
        **columns,
        **_over_depth(mixes),
    )


def _next_token_loss(scores: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
    targets = tokens[:, 1:] if mask is None else tokens[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
    return F.cross_entropy(scores[:, :-1].float().flatten(0, 1), targets.flatten())


def _measure(found: Seen, gradients: list[Tensor | None], counted: Tensor) -> dict[str, Tensor]:
    """What is known of one connection alone."""
    streams, read, write, mix = (
        _over_tokens(tensor, found, counted) for tensor in (found.streams, found.read, found.write, found.mix)
    )
    mean = streams.mean(-2)
    away = (streams - mean[..., None, :]).square().sum(-1).mean(-1)
    unit = F.normalize(streams, dim=-1)
    of_streams = torch.zeros_like(found.streams) if gradients[0] is None else gradients[0]
    power = of_streams.double().square().sum(-1).flatten(0, -2).sum(0)
    norms = [torch.zeros(()) if gradient is None else gradient.double().norm().cpu() for gradient in gradients[1:]]
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
        "stream_gradient_share": (power / power.sum().clamp(min=torch.finfo(power.dtype).tiny)).cpu(),
        "coefficient_gradient": torch.stack([norm.double() for norm in norms]),
    }


def _over_depth(mixes: Float[Tensor, "N depth d d"]) -> dict[str, Tensor]:
    """What the mixes do together: those up to each connection, and those from each on."""
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
    """Of the rows, each normed to one, as a share of the largest; zero for one stream."""
    rows = F.normalize(mix.abs(), p=1, dim=-1)
    return -torch.xlogy(rows, rows).sum(-1).mean(-1) / max(torch.tensor(float(mix.shape[-1])).log().item(), 1e-12)


def _over_tokens(tensor: Tensor, found: Seen, counted: Tensor) -> Tensor:
    """(N, ...) in float64 on the CPU, of the tokens that count; coefficients that all tokens share are repeated."""
    own = tensor.shape[-2:] if tensor is found.mix or tensor is found.streams else tensor.shape[-1:]
    full = tensor.detach().double().expand(*counted.shape, *own)
    return full[counted].cpu()


@contextmanager
def _ready(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, with gradients through every part, also where weights are frozen; as before afterwards."""
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
