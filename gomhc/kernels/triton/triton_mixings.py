"""The map of a form (forms.py) in Triton: one launch for each part that has no parts; torch puts the parts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from gomhc.kernels.forms import COMPOSITES, KINDS, Part, parsed
from gomhc.kernels.plain_gradients import gradients
from gomhc.kernels.triton.triton_map import orthostochastic_backward, orthostochastic_forward
from gomhc.kernels.triton.triton_permutations import permutations_backward, permutations_forward
from gomhc.kernels.triton.triton_sinkhorn import Order, sinkhorn_backward, sinkhorn_forward

SINKHORN: dict[str, Order] = {"sinkhorn": "log", "sinkhorn-linear": "linear", "sinkhorn-v4": "deepseek-v4"}


class Tree(NamedTuple):
    """A map and the maps that it is made of."""

    part: Part
    children: tuple[Tree, ...]

    @property
    def kind(self) -> str:
        return KINDS[self.part.kind]


def tree(form: str) -> Tree:
    """What this form is made of."""
    return _subtree(iter(parsed(form).parts))


def forward(logits: Tensor, mixing: Tree) -> Tensor:
    """(N, d, d) matrices of (N, p) logits."""
    part, kind = mixing.part, mixing.kind
    if kind in COMPOSITES:
        return _combine(kind)(*_matrices(logits, mixing))
    if kind == "go":
        return orthostochastic_forward(logits, part.d, part.number)
    if kind == "permutations":
        return permutations_forward(logits, part.d)
    return sinkhorn_forward(logits, part.d, part.number, SINKHORN[kind], part.real)


def backward(logits: Tensor, grad: Tensor, mixing: Tree) -> Tensor:
    """(N, p) gradients of the logits, given (N, d, d) of the matrices."""
    part, kind = mixing.part, mixing.kind
    if kind in COMPOSITES:
        *pieces, _ = _split(logits, mixing)
        *grads, grad_rest = gradients(_combine(kind), _matrices(logits, mixing), [grad])
        children = zip(pieces, grads, mixing.children, strict=True)
        return torch.cat((*(backward(*child) for child in children), grad_rest), dim=1)
    if kind == "go":
        return orthostochastic_backward(logits, grad, part.d, part.number)
    if kind == "permutations":
        return permutations_backward(logits, grad, part.d)
    return sinkhorn_backward(logits, grad, part.d, part.number, SINKHORN[kind], part.real)


def _subtree(parts: Iterator[Part]) -> Tree:
    part = next(parts)
    num_children = part.number if KINDS[part.kind] in COMPOSITES else 0
    return Tree(part, tuple(_subtree(parts) for _ in range(num_children)))


def _split(logits: Tensor, mixing: Tree) -> tuple[Tensor, ...]:
    """The logits of each part, and those that remain: the weights of an average."""
    sizes = [child.part.p for child in mixing.children]
    return logits.split([*sizes, mixing.part.p - sum(sizes)], dim=1)


def _matrices(logits: Tensor, mixing: Tree) -> tuple[Tensor, ...]:
    """The matrix of each part, and the logits that remain."""
    *pieces, rest = _split(logits, mixing)
    return *(forward(piece, child) for piece, child in zip(pieces, mixing.children, strict=True)), rest


def _combine(kind: str) -> Callable[..., Tensor]:
    return _kronecker if kind == "kronecker" else _average


def _kronecker(*matrices_and_rest: Tensor) -> Tensor:
    *matrices, nothing = matrices_and_rest
    return reduce(_kronecker_product, matrices) + nothing.sum()


def _kronecker_product(a: Tensor, b: Tensor) -> Tensor:
    size = a.shape[1] * b.shape[1]
    return torch.einsum("nij, nkl -> nikjl", a, b).reshape(len(a), size, size)


def _average(*matrices_and_weights: Tensor) -> Tensor:
    *matrices, weights = matrices_and_weights
    return torch.einsum("ns, snij -> nij", weights.softmax(-1), torch.stack(matrices))
