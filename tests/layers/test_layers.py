"""The hyper-connection is the paper's recursion, starts as the plain residual one, and learns."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from variants import REGISTERED, each

import gomhc
from gomhc import (
    HyperConnection,
    Identity,
    Orthostochastic,
    Permutations,
    Promise,
    Sinkhorn,
    SinkhornV4,
    Transportation,
)
from gomhc.birkhoff.measures import amax_gain, composite
from gomhc.layers import Coefficients, LearnedReadout, parameter_groups

D, C = 4, 12
EXACT = [parametrization for parametrization in REGISTERED if parametrization.promise == Promise.EXACT]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def branch(dim=C):
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))


def scrambled(module, scale=0.5):
    """Coefficients far from their start, and different for every token."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, Coefficients):
                for parameter in part.parameters():
                    parameter.add_(scale * torch.randn_like(parameter))
    return module


@pytest.mark.parametrize("dynamic", [True, False])
@each(REGISTERED)
def test_equations_one_to_four(parametrization, dynamic):
    """Written out token by token in float64, with torch's RMS norm before the projection instead of after it."""
    connection = scrambled(HyperConnection(branch(), C, parametrization, dynamic=dynamic)).double()
    streams = torch.randn(2, 3, D, C, dtype=torch.float64)
    coefficients = connection.coefficients
    for index in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        x = streams[tuple(index)]
        logits = coefficients.bias
        if dynamic:
            normed = nn.functional.rms_norm(x.flatten(), (D * C,), eps=1e-6)
            alpha = coefficients.scale.repeat_interleave(torch.tensor(coefficients.sizes))
            logits = alpha * (coefficients.weight @ normed) + logits
        read, write = torch.sigmoid(logits[:D]), 2 * torch.sigmoid(logits[D : 2 * D])
        mix = parametrization(logits[2 * D :])
        y = connection.branch(sum(read[j] * x[j] for j in range(D)))
        expected = torch.stack([sum(mix[i, j] * x[j] for j in range(D)) + write[i] * y for i in range(D)])
        torch.testing.assert_close(connection(streams)[tuple(index)], expected, rtol=1e-9, atol=1e-11)


def test_mix_is_applied_not_its_transpose():
    """A cycle is not symmetric: stream i must get what stream i - 1 had."""
    cycle = torch.eye(D).roll(1, dims=0)
    connection = HyperConnection(torch.zeros_like, C, Transportation(num_streams=D), dynamic=False)
    with torch.no_grad():
        connection.coefficients.bias[2 * D :] = connection.mixing.fit(cycle).logits
    streams = torch.randn(5, D, C)
    torch.testing.assert_close(connection(streams), streams.roll(1, dims=-2), rtol=0, atol=1e-4)
    torch.testing.assert_close(connection.read(streams)[1].mix, cycle, rtol=0, atol=1e-4)


def test_one_stream_is_the_plain_residual():
    """H_res = H_pre = H_post = [1]."""
    connection = HyperConnection(branch(), C, Orthostochastic(num_streams=1))
    x = torch.randn(3, C)
    torch.testing.assert_close(connection(gomhc.expand(x, 1)).squeeze(-2), x + connection.branch(x))


@each(REGISTERED)
def test_from_the_second_step_on_everything_that_can_learn_learns(parametrization):
    """Not the first mix, which acts on equal streams, nor the last one, which feeds a mean."""
    connections = nn.ModuleList(HyperConnection(branch(), C, parametrization) for _ in range(4)).double()
    optimizer = torch.optim.Adam(connections.parameters(), lr=1e-2)
    x, target = torch.randn(2, 16, C, dtype=torch.float64)
    gradients = []
    for _ in range(3):
        streams = gomhc.expand(x, D)
        for connection in connections:
            streams = connection(streams)
        optimizer.zero_grad()
        (gomhc.readout(streams) - target).square().mean().backward()
        parts = [connection.coefficients for connection in connections]
        gradients.append([part.bias.grad.split(part.sizes) for part in parts])
        optimizer.step()
    first, last = gradients[0], gradients[-1]
    for index in range(1, 4):
        assert first[index][0].norm() > 1e-5  # read feels the difference between streams from the start
        assert last[index][0].norm() > 1e-5
        assert last[index][1].norm() > 1e-5
        assert connections[index].coefficients.weight.grad.norm() > 1e-7
        assert connections[index].coefficients.scale.grad[:2].norm() > 1e-7
    if parametrization.num_logits > 0:
        for index in (1, 2):
            assert last[index][2].norm() > 1e-8
    if parametrization.promise == Promise.EXACT:
        assert last[0][2].norm() < 1e-14
        assert last[3][2].norm() < 1e-14


@each(REGISTERED)
def test_ddp_finds_no_unused_parameter(parametrization):
    connections = nn.Sequential(*(HyperConnection(branch(), C, parametrization) for _ in range(2)))
    gomhc.readout(connections(gomhc.expand(torch.randn(3, C), D))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in connections.parameters())


def test_unrolled_recursion():
    """App. B.4: x_L = (prod mix) x_0 + sum_i (prod_{later} mix) write_i F(read_i x_i), with static coefficients."""
    connections = [
        scrambled(HyperConnection(branch(), C, Orthostochastic(num_streams=D), dynamic=False)).double()
        for _ in range(5)
    ]
    start = torch.randn(3, D, C, dtype=torch.float64)
    streams, mixes, written = start, [], []
    for connection in connections:
        branch_input, state = connection.read(streams)
        output = connection.branch(branch_input)
        mixes.append(state.mix)
        written.append(state.write[:, None] * output[..., None, :])
        streams = connection.write(state, output)
    unrolled = composite(torch.stack(mixes)) @ start
    for index, update in enumerate(written):
        later = mixes[index + 1 :]
        unrolled = unrolled + (composite(torch.stack(later)) if later else torch.eye(D).double()) @ update
    torch.testing.assert_close(streams, unrolled)


def composite_gain(parametrization, depth=64):
    """Of a stack of dynamic connections in float32 whose logits have a standard deviation of about three."""
    connections = [scrambled(HyperConnection(torch.zeros_like, C, parametrization), scale=3) for _ in range(depth)]
    streams, mixes = torch.randn(50, D, C), []
    for connection in connections:
        _, state = connection.read(streams)
        mixes.append(state.mix)
    return max(gain.max().item() for gain in amax_gain(composite(torch.stack(mixes, dim=-3))))


@each(EXACT)
def test_composite_gain_over_64_layers_is_one_for_exact_methods(parametrization):
    assert composite_gain(parametrization) == pytest.approx(1, abs=64 * D * torch.finfo(torch.float32).eps)


def test_composite_gain_over_64_layers_drifts_for_sinkhorn():
    assert composite_gain(Sinkhorn(num_streams=D)) > 1.01
    assert composite_gain(SinkhornV4(num_streams=D)) > 1.01


def test_arguments_go_to_the_branch_and_extra_outputs_come_back():
    def attend(x, cache, *, scale):
        return x * scale, cache + 1, "weights"

    connection = HyperConnection(attend, C, Orthostochastic(num_streams=D))
    streams = torch.randn(3, D, C)
    for recompute in (False, True):
        connection.recompute = recompute
        out, cache, weights = connection(streams, 41, scale=2.0)
        branch_input, state = connection.read(streams)
        torch.testing.assert_close(out, connection.write(state, 2.0 * branch_input))
        assert (cache, weights) == (42, "weights")


def test_split_form_equals_the_wrapper():
    connection, streams = scrambled(HyperConnection(branch(), C, Orthostochastic(num_streams=D))), torch.randn(3, D, C)
    alone = HyperConnection(None, C, Orthostochastic(num_streams=D))
    alone.coefficients.load_state_dict(connection.coefficients.state_dict())
    branch_input, state = alone.read(streams)
    assert torch.equal(alone.write(state, connection.branch(branch_input)), connection(streams))
    with pytest.raises(ValueError, match="has no branch; call read and write"):
        alone(streams)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coefficients_are_float32_whatever_the_streams(dtype):
    connection = scrambled(HyperConnection(None, C, Orthostochastic(num_streams=D)))
    streams = torch.randn(7, D, C).to(dtype)
    branch_input, state = connection.read(streams)
    exact_input, exact = connection.read(streams.float())
    assert branch_input.dtype == dtype
    assert state.mix.dtype == state.write.dtype == torch.float32
    torch.testing.assert_close(state.mix, exact.mix)
    assert torch.equal(branch_input, exact_input.to(dtype))
    out = connection.write(state, branch_input)
    assert out.dtype == dtype
    assert torch.equal(out, connection.write(exact, branch_input.float()).to(dtype))


def test_autocast_leaves_the_coefficients_alone():
    connection = scrambled(HyperConnection(branch(), C, Orthostochastic(num_streams=D)))
    streams = torch.randn(7, D, C, requires_grad=True)
    plain = connection.read(streams)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = connection.read(streams)
        out = connection(streams)
    assert torch.equal(cast[0], plain[0])
    assert torch.equal(cast[1].mix, plain[1].mix)
    assert out.dtype == torch.float32
    out.backward(torch.randn_like(out))
    assert streams.grad.isfinite().all()
    torch.testing.assert_close(out, connection(streams), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_do_not_depend_on_the_dtype_that_streams_are_kept_in(dtype):
    connection = scrambled(HyperConnection(None, C, Orthostochastic(num_streams=D)))
    streams = torch.randn(7, D, C).bfloat16()
    cotangent = torch.randn(7, D, C).bfloat16()
    gradients = []
    for kept in (dtype, torch.float64):
        connection.zero_grad()
        leaf = streams.detach().to(kept).requires_grad_()
        branch_input, state = connection.read(leaf)
        connection.write(state, branch_input).backward(cotangent.to(kept))
        gradients.append((leaf.grad.double(), connection.coefficients.bias.grad.double().clone()))
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


def test_gradients_match_finite_differences():
    connection = scrambled(HyperConnection(torch.tanh, 3, Orthostochastic(num_streams=2))).double()
    names, parameters = zip(*connection.named_parameters(), strict=True)

    def function(streams, *values):
        return torch.func.functional_call(connection, dict(zip(names, values, strict=True)), (streams,))

    streams = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (streams, *(value.detach().requires_grad_() for value in parameters)))


def kept_for_backward(connection, streams):
    """Floats a token of each tensor that backward holds, parameters left out; tensors of one memory count once."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in connection.parameters()}
    kept = {}

    def note(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in parameters:
            kept[memory.data_ptr()] = memory.nbytes() / 4 / streams.shape[0]
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = connection(streams)
    return sorted(kept.values(), reverse=True), out


def test_nothing_of_stream_size_is_kept_beyond_the_input_and_the_output_of_the_branch():
    dim, tokens = 384, 64
    connection = HyperConnection(lambda x: 2 * x, dim, Orthostochastic(num_streams=D))
    streams = torch.randn(tokens, D, dim, requires_grad=True)
    kept, _ = kept_for_backward(connection, streams)
    assert kept[:2] == [D * dim, dim]  # the streams, and what the branch gave
    assert max(kept[2:]) < dim
    print(f"\nfloats a token: {kept[0]:.0f} streams, {kept[1]:.0f} branch output, {sum(kept[2:]):.0f} coefficients")
    connection.recompute = True
    less, out = kept_for_backward(connection, streams)
    assert sum(less) <= D * dim  # at most the streams
    print(f"with recompute: {sum(less):.0f}, the streams alone")
    out.backward(torch.randn_like(out))
    assert streams.grad.isfinite().all()


def test_half_precision_streams_are_kept_as_they_are():
    dim, tokens = 384, 64
    connection = HyperConnection(lambda x: 2 * x, dim, Orthostochastic(num_streams=D))
    kept, _ = kept_for_backward(connection, torch.randn(tokens, D, dim).bfloat16().requires_grad_())
    assert kept[0] == D * dim / 2  # the streams, at two bytes a number
    assert max(kept[1:]) <= dim / 2


def test_recompute_changes_nothing_but_memory():
    connection, streams = scrambled(HyperConnection(branch(), C, Orthostochastic(num_streams=D))), torch.randn(5, D, C)
    cotangent, gradients = torch.randn(5, D, C), []
    for recompute in (False, True):
        connection.recompute = recompute
        connection.zero_grad()
        connection(streams).backward(cotangent)
        gradients.append([parameter.grad.clone() for parameter in connection.parameters()])
    for plain, again in zip(*gradients, strict=True):
        assert torch.equal(plain, again)


@pytest.mark.parametrize("start", ["mean-stream", "near-identity", "deepseek-v4"])
def test_starts_have_the_values_they_are_named_for(start):
    def coefficients(layer_index):
        connection = HyperConnection(None, C, Permutations(num_streams=D), start=start, layer_index=layer_index)
        return connection.read(torch.zeros(D, C))[1], connection.coefficients(torch.zeros(D, C))[0], connection

    state, read, connection = coefficients(5)
    steering = connection.coefficients.weight.abs().max()
    if start == "mean-stream":
        torch.testing.assert_close(read, torch.full((D,), 1 / D))
        assert state.write.mean().item() == pytest.approx(1)
        assert len(state.write.unique()) == D
        assert steering == 0
    elif start == "near-identity":
        assert read.argmax() == 5 % D
        torch.testing.assert_close(state.write, torch.ones(D))
        assert 1 - state.mix.diagonal().mean().item() == pytest.approx(0.1, abs=1e-3)
        assert steering > 0
    else:
        torch.testing.assert_close(read, torch.full((D,), 0.5))
        torch.testing.assert_close(state.mix, torch.full((D, D), 0.25))
        assert connection.coefficients.scale.tolist() == [1, 1, 1]


def test_start_depends_on_the_generator_alone():
    first, same, other = (
        HyperConnection(None, C, Orthostochastic(num_streams=D), generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.coefficients.bias, same.coefficients.bias)
    assert not torch.equal(first.coefficients.bias, other.coefficients.bias)


def test_expand_and_readouts():
    x = torch.randn(2, 3, C)
    streams = gomhc.expand(x, D)
    assert streams.shape == (2, 3, D, C)
    torch.testing.assert_close(gomhc.readout(streams), x)
    torch.testing.assert_close(gomhc.readout(streams, "sum"), D * x)
    learned = LearnedReadout(C, D)
    torch.testing.assert_close(learned(streams), x)
    different = torch.randn(2, 3, D, C)
    with torch.no_grad():
        learned.bias.copy_(torch.tensor([30.0, -30, -30, -30]))
    torch.testing.assert_close(learned(different), different[..., 0, :])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        gomhc.expand(x, 0)


def test_static_coefficients_do_not_decay():
    model = nn.Sequential(
        HyperConnection(branch(), C, Orthostochastic(num_streams=D)),
        HyperConnection(branch(), C, Orthostochastic(num_streams=D), dynamic=False),
        LearnedReadout(C, D),
    )
    model.mixed = nn.Module()
    model.mixed.weight = nn.Parameter(torch.randn(2, D, D))
    gomhc.doubly_stochastic(model.mixed, "weight", Orthostochastic(num_streams=D))
    decaying, others = parameter_groups(model, weight_decay=0.1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert decaying["weight_decay"] == 0.1
    assert others["weight_decay"] == 0
    assert sorted(names[id(parameter)] for parameter in decaying["params"]) == [
        "0.branch.1.weight",
        "0.branch.3.weight",
        "0.coefficients.weight",
        "1.branch.1.weight",
        "1.branch.3.weight",
        "2.weight",
    ]
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))
    torch.optim.AdamW([decaying, others])


def test_coefficients_can_learn_at_a_rate_of_their_own():
    model = nn.Sequential(
        HyperConnection(branch(), C, Orthostochastic(num_streams=D)),
        gomhc.FracConnection(branch(), C, 2),
        nn.Linear(C, C),
    )
    groups = parameter_groups(model, 0.1, coefficient_learning_rate=1e-4)
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = {names[id(parameter)]: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    slow = {"0.coefficients.weight", "0.coefficients.bias", "0.coefficients.scale"}
    slow |= {name for name in rates if name.startswith("1.") and "branch" not in name}
    assert rates == {name: 1e-4 if name in slow else 1e-3 for name in names.values()}
    decays = {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}
    plain = parameter_groups(model, 0.1)
    assert decays == {names[id(parameter)]: group["weight_decay"] for group in plain for parameter in group["params"]}
    assert len(parameter_groups(nn.Linear(C, C), 0.1, 1e-4)) == 2
    with pytest.raises(ValueError, match="coefficient_learning_rate"):
        parameter_groups(model, 0.1, -1.0)


def test_state_dict_round_trip_and_deepcopy():
    connection, other = (scrambled(HyperConnection(branch(), C, Permutations(num_streams=D))) for _ in range(2))
    streams = torch.randn(3, D, C)
    assert not torch.equal(connection(streams), other(streams))
    other.load_state_dict(connection.state_dict())
    assert torch.equal(connection(streams), other(streams))
    assert torch.equal(connection(streams), copy.deepcopy(connection)(streams))


def test_any_batch_shape():
    connection = scrambled(HyperConnection(branch(), C, Orthostochastic(num_streams=D)))
    for batch in ((), (0,), (2, 0), (2, 3, 5)):
        assert connection(torch.randn(*batch, D, C)).shape == (*batch, D, C)


def test_mistakes_are_explained():
    connection = HyperConnection(branch(), C, Orthostochastic(num_streams=D))
    with pytest.raises(ValueError, match=r"shape \(\*batch, 4, 12\), got \(2, 5, 12\); gomhc.expand\(x, 4\)"):
        connection(torch.randn(2, 5, C))
    with pytest.raises(ValueError, match=r"\(\*batch, 4, 12\), got \(2, 4, 13\)"):
        connection(torch.randn(2, D, C + 1))
    with pytest.raises(ValueError, match=r"got \(12,\)"):
        connection(torch.randn(C))
    wrong = HyperConnection(lambda x: x[..., :-1], C, Orthostochastic(num_streams=D))
    with pytest.raises(ValueError, match=r"must return the shape of its input, \(2, 12\), got \(2, 11\)"):
        wrong(torch.randn(2, D, C))


@pytest.mark.unchecked
def test_unknown_start():
    with pytest.raises(ValueError, match="one of mean-stream, equal-streams, near-identity, deepseek-v4, got 'zero'"):
        HyperConnection(None, C, Identity(num_streams=D), start="zero")


@pytest.mark.unchecked
def test_unknown_readout():
    with pytest.raises(ValueError, match="one of mean, sum, got 'max'; for learned weights use LearnedReadout"):
        gomhc.readout(torch.zeros(2, D, C), "max")
