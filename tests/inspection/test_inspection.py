"""What `inspect` says of the streams is what they do, and looking changes nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

import gomhc
from gomhc.inspection import inspect
from gomhc.inspection.findings import checks, findings, verdict
from gomhc.layers import written
from gomhc.models import GPT, GPTConfig

D = 4


def gpt(mixing=None, num_layers=3, **options):
    config = GPTConfig(
        num_layers=num_layers,
        num_heads=2,
        num_channels=16,
        context_length=16,
        vocab_size=61,
        mixing=mixing or gomhc.Orthostochastic(num_streams=D),
        **options,
    )
    return GPT(config, torch.Generator().manual_seed(0))


def moved(model):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "coefficients" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def text(batch=2, time=11):
    return torch.randint(1, 61, (batch, time), generator=torch.Generator().manual_seed(1))


def test_at_the_start_coefficients_are_those_of_the_start():
    model = gpt()
    found = inspect(model, text())
    assert found.names == tuple(f"{layer} {part}" for layer in range(3) for part in ("attention", "feed_forward"))
    assert found.num_tokens == 22
    assert found.loss == pytest.approx(model(text()[:, :-1], text()[:, 1:])[1].item(), rel=1e-5)
    favoured = torch.eye(D, dtype=torch.float64)[torch.arange(6) % D]
    read = 0.7 * favoured + 0.3 / (D - 1) * (1 - favoured)
    torch.testing.assert_close(found.read_mean, read, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.write_mean, torch.ones(6, D, dtype=torch.float64), rtol=0, atol=1e-6)
    assert found.mix_spread.max() == 0  # nothing steers yet
    diagonal = found.mix_mean.diagonal(dim1=-2, dim2=-1).mean(-1)
    torch.testing.assert_close(diagonal, torch.full((6,), 0.9, dtype=torch.float64), rtol=0, atol=1e-5)


def test_mixes_are_those_that_the_model_applies():
    """Taken from the layers by another way: calling each on its streams."""
    model = moved(gpt(num_layers=1))
    found = inspect(model, text())
    streams = gomhc.expand(model.tokens(text()) + model.positions(torch.arange(11)), D)
    first = model.blocks[0].attention.coefficients(streams)
    torch.testing.assert_close(found.mix_mean[0], first.mix.double().mean((0, 1)))
    torch.testing.assert_close(found.mix_spread[0], first.mix.double().std((0, 1), correction=0))
    torch.testing.assert_close(found.read_mean[0], first.read.double().mean((0, 1)))
    torch.testing.assert_close(found.write_spread[0], first.write.double().std((0, 1), correction=0))
    after = written(model.blocks[0].attention(streams, None)[0])
    second = model.blocks[0].feed_forward.coefficients(after)
    torch.testing.assert_close(found.mix_mean[1], second.mix.double().mean((0, 1)), rtol=1e-5, atol=1e-6)
    unit = torch.nn.functional.normalize(after.double(), dim=-1)
    torch.testing.assert_close(found.stream_similarity[1], (unit @ unit.mT).mean((0, 1)), rtol=1e-5, atol=1e-6)


def test_identity_never_mixes_and_equal_mixing_forgets_at_once():
    still = inspect(gpt(gomhc.Identity(num_streams=D)), text())
    assert still.distance_to_identity.max() == 0
    assert still.entropy.max() == 0
    assert still.second_eigenvalue.min() == 1
    assert still.composite_second_eigenvalue[-1] == 1
    model = gpt(gomhc.Unconstrained(num_streams=D))
    with torch.no_grad():
        for block in model.blocks:
            for part in (block.attention, block.feed_forward):
                part.coefficients.bias[2 * D :] = 1 / D
    even = inspect(model, text())
    assert even.second_eigenvalue.max() < 1e-6
    assert even.entropy.min() == pytest.approx(1)
    torch.testing.assert_close(
        even.distance_to_identity, torch.full((6,), math.sqrt(D - 1), dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_gain_counts_from_the_first_connection_forward_and_from_the_last_backward():
    """Mixes of twice the identity: 2, 4, 8, ... one way and ..., 8, 4, 2 the other."""
    model = gpt(gomhc.Unconstrained(num_streams=D), num_layers=2)
    with torch.no_grad():
        for block in model.blocks:
            for part in (block.attention, block.feed_forward):
                part.coefficients.bias[2 * D :] = 2 * torch.eye(D).flatten()
    found = inspect(model, text())
    assert found.gain_forward.tolist() == [2, 4, 8, 16]
    assert found.gain_backward.tolist() == [16, 8, 4, 2]
    assert found.marginal_error.tolist() == [1, 1, 1, 1]
    said = " ".join(findings(found))
    assert "amplify a signal by a factor of up to 16." in said
    assert "not doubly stochastic" in said


def test_exact_methods_have_gain_one():
    found = inspect(moved(gpt()), text())
    assert (found.gain_forward - 1).abs().max() < 1e-5
    assert (found.gain_backward - 1).abs().max() < 1e-5
    assert found.marginal_error.max() < 1e-6


def test_gradient_norms_are_those_of_autograd():
    """Static coefficients: the gradient at the logits is the gradient of the bias."""
    model = moved(gpt(dynamic=False))
    found = inspect(model, text())
    _, loss = model(text(), torch.cat((text()[:, 1:], torch.full((2, 1), -1)), dim=-1))
    loss.backward()
    for index, part in enumerate(part for block in model.blocks for part in (block.attention, block.feed_forward)):
        for kind, gradient in enumerate(part.coefficients.bias.grad.split(part.coefficients.sizes)):
            assert found.coefficient_gradient[index, kind].item() == pytest.approx(
                gradient.norm().item(), rel=1e-3, abs=1e-7
            )


def test_at_the_start_mixes_get_no_gradient_and_it_is_said():
    found = inspect(gpt(), text())
    assert found.coefficient_gradient[:, 2].max() < 1e-4 * found.coefficient_gradient.max()
    assert any("mixes hardly learn" in sentence for sentence in findings(found))
    assert not any("learn" in sentence for sentence in findings(inspect(moved(gpt()), text())))


def test_shares_of_gradient_sum_to_one_and_follow_the_reads():
    found = inspect(moved(gpt()), text())
    torch.testing.assert_close(found.stream_gradient_share.sum(-1), torch.ones(6, dtype=torch.float64))
    model = gpt(gomhc.Identity(num_streams=D), readout="sum")
    with torch.no_grad():  # all read stream 2 alone, and the last connection has no share but the sum's
        for block in model.blocks:
            for part in (block.attention, block.feed_forward):
                part.coefficients.bias[:D] = torch.tensor([-9.0, -9.0, 5.0, -9.0])
    assert (inspect(model, text()).stream_gradient_share.argmax(-1) == 2).all()


def test_collapsed_streams_are_seen():
    model = gpt(gomhc.Identity(num_streams=D))
    with torch.no_grad():
        for block in model.blocks:
            for part in (block.attention, block.feed_forward):
                part.coefficients.bias[D : 2 * D] = 0  # all are written alike
    found = inspect(model, text())
    torch.testing.assert_close(found.similarity, torch.ones(6, dtype=torch.float64))
    assert found.stream_spread.max() < 1e-6
    assert any("streams are nearly equal" in sentence for sentence in findings(found))
    assert any("6 of 6 connections hardly mix" in sentence for sentence in findings(found))


def test_verdict_says_that_streams_are_healthy_with_their_numbers_or_how_many_checks_fail():
    ill = inspect(moved(gpt()), text())
    apart = 0.5 * torch.ones_like(ill.stream_similarity) + 0.5 * torch.eye(D, dtype=ill.stream_similarity.dtype)
    half = torch.full_like(ill.composite_second_eigenvalue, 0.5)
    well = replace(ill, stream_similarity=apart, composite_second_eigenvalue=half)
    assert len(findings(ill)) == 2
    assert verdict(ill) == "7 of 9 checks of the streams pass, and 2 fail."
    assert verdict(replace(well, gain_forward=2 + half)).endswith("and 1 fails.")
    assert verdict(well).startswith("The streams are healthy. All 9 checks pass: streams differ (mean cosine 0.5000 at")
    assert [check.finding for check in checks(ill) if not check.passed] == findings(ill)


def test_streams_that_are_not_numbers_are_not_healthy():
    """As in a network that has diverged; zero gradients are no learning either."""
    found = inspect(moved(gpt()), text())
    measured = {
        name: torch.full_like(value, torch.nan)
        for name, value in vars(found).items()
        if isinstance(value, torch.Tensor)
    }
    assert not any(check.passed for check in checks(replace(found, **measured)))
    still = replace(found, coefficient_gradient=torch.zeros_like(found.coefficient_gradient))
    assert sum("hardly learn" in sentence for sentence in findings(still)) == 3


@pytest.mark.parametrize("recompute", [False, True])
def test_looking_changes_nothing(recompute):
    model = moved(gpt(recompute=recompute, dropout=0.1)).train()
    model.tokens.weight.requires_grad_(False)
    model.blocks[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    inspect(model, text())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [name for name, parameter in model.named_parameters() if not parameter.requires_grad] == frozen
    assert model.training
    assert not model.blocks[0].training
    assert all("read" not in vars(module) for module in model.modules())


def test_it_works_where_all_weights_are_frozen_and_without_gradients():
    model = moved(gpt())
    expected = inspect(model, text())
    with torch.no_grad():
        found = inspect(model.requires_grad_(False), text())
    torch.testing.assert_close(found.coefficient_gradient, expected.coefficient_gradient)


@pytest.mark.parametrize("key", gomhc.PARAMETRIZATIONS)
def test_it_works_with_every_parametrization_and_writes_finite_json(key):
    found = inspect(gpt(gomhc.PARAMETRIZATIONS[key](num_streams=D), num_layers=1), text())
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(written["mix_mean"]) == 2
    assert written["summary"]["mix/gain_forward"] == pytest.approx(1, abs=1e-2)
    assert all(math.isfinite(value) for value in found.summary().values())


def test_one_stream_is_no_special_case():
    found = inspect(gpt(gomhc.Transportation(num_streams=1), num_layers=1), text())
    assert found.entropy.tolist() == [0, 0]
    assert found.similarity.tolist() == pytest.approx([1, 1])


def test_a_plain_model_is_refused():
    model = GPT(GPTConfig(num_layers=1, num_heads=2, num_channels=16, context_length=16, vocab_size=61))
    with pytest.raises(ValueError, match="GPT has no hyper-connections to inspect"):
        inspect(model, text())


@pytest.mark.unchecked
@pytest.mark.parametrize("tokens", [torch.zeros(3, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)])
def test_tokens_of_another_shape_are_refused(tokens):
    with pytest.raises(ValueError, match=r"tokens must have the shape \(batch, time\) with a time of at least two"):
        inspect(gpt(), tokens)


class TestModelsOfTransformers:
    """What is watched there, and how the Trainer logs it."""

    @pytest.fixture(autouse=True)
    def transformers(self):
        return pytest.importorskip("transformers", reason="needs gomhc[hf]")

    def test_an_upcycled_model_is_seen_as_it_is(self):
        from decoders import decoder

        model = moved(gomhc.upcycle(decoder("gpt_neox")))
        found = inspect(model, text())
        assert found.names == tuple(f"{layer} attention_and_feed_forward" for layer in range(3))
        assert found.loss == pytest.approx(model(text(), labels=text()).loss.item(), rel=1e-5)

    def test_padding_does_not_count(self):
        from decoders import decoder

        model = moved(gomhc.upcycle(decoder()))
        short = text(1, 7)
        padded = torch.cat((short, torch.zeros(1, 4, dtype=torch.long)), dim=-1)
        found, expected = inspect(model, padded, (padded != 0).long()), inspect(model, short)
        assert found.num_tokens == 7
        for name in ("mix_mean", "stream_similarity", "coefficient_gradient", "stream_gradient_share"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-6)

    def test_hooks_of_accelerate_run_meanwhile_and_stay(self):
        hooks = pytest.importorskip("accelerate.hooks", reason="needs accelerate")
        from decoders import with_sinkhorn

        class Counting(hooks.ModelHook):
            calls = 0

            def pre_forward(self, module, *args, **kwargs):
                self.calls += 1
                return args, kwargs

        model, hook = with_sinkhorn(), Counting()
        expected = inspect(model, text())
        hooks.add_hook_to_module(model.model.layers[0].attn_hc, hook)
        patched = model.model.layers[0].attn_hc.forward
        found = inspect(model, text())
        assert hook.calls == 1
        assert model.model.layers[0].attn_hc.forward is patched
        assert found.names == expected.names
        torch.testing.assert_close(found.mix_mean, expected.mix_mean, rtol=0, atol=0)
        model(text())
        assert hook.calls == 2

    def test_hyper_connections_of_deepseek_v4_are_seen_as_their_swapped_twins(self):
        from decoders import with_sinkhorn

        model = with_sinkhorn(num_layers=2)
        theirs = inspect(model, text())
        mine = inspect(gomhc.swap_mixing(model, "sinkhorn", copy=True), text())
        assert theirs.names == mine.names == ("0 attn_hc", "0 ffn_hc", "1 attn_hc", "1 ffn_hc")
        assert theirs.loss == pytest.approx(model(text(), labels=text()).loss.item(), rel=1e-5)
        for name in ("read_mean", "write_mean", "mix_mean", "stream_similarity", "stream_gradient_share"):
            torch.testing.assert_close(getattr(theirs, name), getattr(mine, name), rtol=1e-3, atol=1e-4)
        comb = model.model.layers[0].attn_hc(torch.zeros(1, 1, 4, 32))[1][0, 0].double()
        assert (theirs.mix_mean[0] - comb.mT).norm() < (theirs.mix_mean[0] - comb).norm()  # applied transposed

    def test_the_trainer_logs_what_the_streams_do(self, transformers, tmp_path):
        pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
        from decoders import decoder

        from gomhc.inspection.trainer_callback import InspectionCallback

        model = gomhc.upcycle(decoder())
        data = [{"input_ids": row, "labels": row} for row in text(8)]
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path, max_steps=4, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
            use_cpu=True, disable_tqdm=True, gradient_checkpointing=True, save_steps=4,
        )  # fmt: skip
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
        trainer.add_callback(InspectionCallback(trainer, text(), every=2))
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "mix/entropy" in entry]
        assert [entry["step"] for entry in logs] == [2, 4]
        assert set(inspect(model, text()).summary()) <= set(logs[0])
        assert logs[1]["gradient/mix"] > 0
        loaded = gomhc.from_pretrained(tmp_path / "checkpoint-4")
        with torch.no_grad():
            assert torch.equal(loaded(text()).logits, model.eval()(text()).logits)
