"""`gomhc inspect` shows what the streams of a model do: a table, a page that a browser likes, all numbers as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch
from browser import assert_sound, needs_chromium, open_page

import gomhc
from gomhc.inspection import inspect
from gomhc.lab.report.inspection_page import inspection_page
from gomhc.models import GPT, GPTConfig


def gomhc_command(*arguments):
    command = [sys.executable, "-m", "gomhc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def page():
    config = GPTConfig(
        num_layers=9,
        num_heads=2,
        num_channels=16,
        context_length=32,
        vocab_size=61,
        mixing=gomhc.Orthostochastic(num_streams=4),
    )
    generator = torch.Generator().manual_seed(0)
    model = GPT(config, generator)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "coefficients" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    found = inspect(model, torch.randint(61, (2, 20), generator=generator))
    return inspection_page(found, "Streams of <a model>", "Once upon <b>a time</b>").html()


@needs_chromium
@pytest.mark.parametrize("width", [500, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_page_is_sound_in_a_browser(page, tmp_path, width, dark):
    seen = open_page(page, tmp_path, width=width, dark=dark)
    assert_sound(seen)
    assert len(seen["plots"]) == 10
    assert seen["overflow"] <= 0
    background, ink = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("background", "ink"))
    assert background < ink if dark else background > ink


def test_page_has_every_connection_and_no_markup_from_outside(page):
    for layer in range(9):
        assert f">{layer} attention<" in page
        assert f">{layer} feed_forward<" in page
    assert "<a model>" not in page
    assert "Once upon &lt;b&gt;a time" in page


def test_a_run_of_gomhc_train_is_inspected(tmp_path):
    run = tmp_path / "run"
    done = gomhc_command("train", "stories-tiny", "--out", run, "--steps", 3, "--mixing", "go")
    assert done.returncode == 0, done.stderr
    files = ("--html", tmp_path / "page.html", "--json", tmp_path / "numbers.json")
    done = gomhc_command("inspect", run, "--text", "Once upon a time there was a boat.", *files)
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    for name in numbers["names"]:
        assert f" {name} " in done.stdout
    assert numbers["summary"]["mix/marginal_error"] < 1e-6
    assert numbers["summary"]["gradient/mix"] > 0
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_a_saved_model_of_transformers_is_inspected(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs gomhc[hf]")
    tokenizers = pytest.importorskip("tokenizers", reason="needs gomhc[hf]")
    from decoders import decoder

    words = {word: number for number, word in enumerate(["?", "Once", "upon", "a", "time", "there", "was", "boat"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(tmp_path)
    gomhc.upcycle(decoder()).save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text("Once upon a time there was a boat " * 10)
    done = gomhc_command("inspect", tmp_path, "--file", tmp_path / "text.txt", "--max-tokens", 20)
    assert done.returncode == 0, done.stderr
    assert "4 streams, 6 connections, 20 tokens" in done.stdout
    assert "2 feed_forward" in done.stdout


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    done = gomhc_command("inspect", tmp_path / "gone")
    assert done.returncode == 1
    assert re.fullmatch(r"error: there is no folder .*gone; give the folder of a run of .*\n", done.stderr)
