"""Calls of C++ without torch's operators compute the same, and stay away where torch wants more than numbers."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gomhc import HyperConnection, kernels
from gomhc.kernels import direct, dispatch
from gomhc.kernels.library import ELEMENTS, library
from gomhc.layers import Pending

pytestmark = pytest.mark.skipif(library() is None, reason="the library is not built: no C++ compiler")


@pytest.fixture
def chain():
    """Two connections, joined, around a branch."""
    torch.manual_seed(0)
    first, second = (HyperConnection(None, 20, num_streams=4, start="near-identity") for _ in range(2))

    def run(streams):
        branch_input, state = first.read(streams)
        branch_input, state = second.read(Pending(state, torch.tanh(branch_input)))
        return second.write(state, torch.tanh(branch_input))

    return run


@pytest.fixture
def calls(monkeypatch):
    """Names of the functions that were called directly and took their tensors."""
    done = []
    for name in ("connect", "write"):
        function = getattr(direct, name)

        def watched(*arguments, function=function, name=name):
            result = function(*arguments)
            if result is not None:
                done.append(name)
            return result

        monkeypatch.setattr(direct, name, watched)
    return done


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("batch", [(1, 1), (3,), (2, 3, 5), (0,)])
def test_a_direct_call_is_the_operator_bit_for_bit(chain, calls, batch, dtype):
    streams = torch.randn(*batch, 4, 20).to(dtype)
    with torch.no_grad():
        alone = chain(streams)
    assert calls == ["connect", "connect", "write"]
    assert torch.equal(alone, chain(streams))
    assert len(calls) == 3


def test_streams_that_were_expanded_are_taken(chain, calls):
    streams = torch.randn(5, 1, 20).expand(5, 4, 20)
    with torch.no_grad():
        alone = chain(streams)
    assert calls == ["connect", "connect", "write"]
    assert torch.equal(alone, chain(streams.clone()))


def test_another_version_may_be_asked_for(chain, calls):
    with torch.no_grad(), kernels.use("plain"):
        plain = chain(torch.ones(3, 4, 20))
    assert calls == []
    with torch.no_grad():
        torch.testing.assert_close(chain(torch.ones(3, 4, 20)), plain)


class Record(TorchDispatchMode):
    """A mode that keeps the names of our operators in the order of their calls."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "gomhc":
            self.seen.append(function.name().removeprefix("gomhc::").removesuffix("_without_gradient"))
        return function(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_the_operators(chain, calls):
    with torch.no_grad(), Record() as mode:
        chain(torch.randn(3, 4, 20))
    assert calls == []
    assert mode.seen == ["connect", "connect", "write"]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_connection_behind_a_branch_in_half_precision_is_read_and_mapped_in_one_call(dynamic):
    """As autocast leaves it: only the write is a call of its own."""
    connection = HyperConnection(None, 20, num_streams=4, dynamic=dynamic, start="near-identity")
    with Record() as mode:
        branch_input, state = connection.read(torch.randn(3, 4, 20))
        branch_input, state = connection.read(Pending(state, branch_input.bfloat16()))
    assert mode.seen == ["connect", "write", "connect"]


def test_a_function_mode_sees_the_operators(chain, calls):
    with torch.no_grad(), torch.overrides.BaseTorchFunctionMode():
        chain(torch.randn(3, 4, 20))
    assert calls == []


def test_a_tensor_subclass_stays_one(chain, calls):
    class Marked(torch.Tensor):
        pass

    with torch.no_grad():
        assert type(chain(torch.randn(3, 4, 20).as_subclass(Marked))) is Marked
    assert calls == []


def test_transforms_are_left_to_the_plain_version(chain, calls):
    streams, tangent = torch.randn(3, 4, 20), torch.randn(3, 4, 20)
    with torch.no_grad():
        mapped = torch.func.vmap(chain)(streams)
        _, change = torch.func.jvp(chain, (streams,), (tangent,))
    assert calls == []
    with torch.no_grad():
        torch.testing.assert_close(mapped, chain(streams))
    (pulled,) = torch.autograd.grad(chain(streams.requires_grad_()), streams, change)
    torch.testing.assert_close((pulled * tangent).sum(), change.square().sum(), rtol=1e-4, atol=0)


def test_a_negated_view_is_negated(chain, calls):
    complex_streams = torch.view_as_complex(torch.randn(3, 4, 20, 2))
    negated = complex_streams.conj().imag
    assert negated.is_neg()
    with torch.no_grad():
        assert torch.equal(chain(negated), chain(-complex_streams.imag))


def test_fake_tensors_have_no_memory_to_read(chain, calls):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        streams = mode.from_tensor(torch.randn(3, 4, 20))
    with torch.no_grad():
        assert chain(streams).shape == (3, 4, 20)
    assert calls == []


def test_no_direct_call_where_a_gradient_is_wanted():
    assert not dispatch.is_direct()
    with torch.no_grad():
        assert dispatch.is_direct()
    with torch.inference_mode():
        assert dispatch.is_direct()
