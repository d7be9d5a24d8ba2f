"""Parametrizations go through whatever torch does to functions."""

from __future__ import annotations

import copy
import pickle
import shutil

import pytest
import torch
from random_logits import cotangent_like, random_logits
from variants import ALL, OPTIONS, REGISTERED, each

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")


def value_and_gradient(function, logits):
    logits = logits.detach().requires_grad_()
    matrix = function(logits)
    if not matrix.requires_grad:
        return matrix, None
    return matrix, torch.autograd.grad(matrix, logits, cotangent_like(matrix))[0]


@pytest.mark.unchecked
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
@each(REGISTERED + OPTIONS[2:5])
def test_compiled_in_one_graph_it_gives_the_same(parametrization, backend):
    torch._dynamo.reset()
    compiled = torch.compile(parametrization, fullgraph=True, backend=backend)
    logits = random_logits(parametrization, 8, dtype=torch.float32)
    plain, ours = value_and_gradient(parametrization, logits), value_and_gradient(compiled, logits)
    torch.testing.assert_close(ours, plain, rtol=0, atol=200 * torch.finfo(torch.float32).eps)


@each([mixing for mixing in ALL if mixing.key != "projection" or mixing.num_streams == 2])  # minutes for each size
def test_exported_it_gives_the_same(parametrization):
    class Module(torch.nn.Module):
        def forward(self, logits):
            return parametrization(logits)

    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Module(), (random_logits(parametrization, 8),), dynamic_shapes={"logits": {0: batch}})
    logits = random_logits(parametrization, 5)
    torch.testing.assert_close(program.module()(logits), parametrization(logits), rtol=0, atol=1e-12)
    assert not parametrization(logits).is_meta


@each(ALL)
def test_vmap_is_a_batch(parametrization):
    logits = random_logits(parametrization, 3, 5)
    mapped = torch.func.vmap(torch.func.vmap(parametrization))(logits)
    torch.testing.assert_close(mapped, parametrization(logits), rtol=0, atol=1e-12)


@each([parametrization for parametrization in ALL if parametrization.num_logits > 0])
def test_jacobians_of_all_kinds_agree(parametrization):
    logits = random_logits(parametrization, 3)
    one_by_one = torch.stack([torch.autograd.functional.jacobian(parametrization, element) for element in logits])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        mapped = torch.func.vmap(jacobian(parametrization))(logits)
        torch.testing.assert_close(mapped, one_by_one, rtol=1e-9, atol=1e-10)


@each(ALL)
def test_it_is_a_value(parametrization):
    logits = random_logits(parametrization, 2)
    for again in (copy.deepcopy(parametrization), pickle.loads(pickle.dumps(parametrization))):
        assert again == parametrization
        assert hash(again) == hash(parametrization)
        assert torch.equal(again(logits), parametrization(logits))
