"""`gomhc inspect`: the streams of a model on a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

import gomhc
from gomhc import inspection
from gomhc.checks import require_whole
from gomhc.inspection.findings import findings, verdict
from gomhc.lab.cli.inspection_table import inspection_table
from gomhc.lab.cli.terminal import needs, print_table, table_console, write_json
from gomhc.lab.files import read_text, require_writable, write_atomically

SAMPLE_TEXT = (
    "Once upon a time there was a little boat that was afraid of the sea. Every morning the fishermen rowed out, and "
    "the little boat stayed in the harbour and watched them go. One day a storm came, and nobody saw the old man who "
    "had lost his oar. Then the little boat was not afraid any more. It went out, found him, and brought him home."
)
"""The text that a model reads by default."""


def inspect(
    model: Annotated[Path, tyro.conf.Positional],
    text: str = SAMPLE_TEXT,
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None,
    max_tokens: int = 512,
) -> None:
    """Print what the streams of a model do on a text, layer by layer: coefficients, similarity, gain and gradients.

    Args:
        model: Folder of a run of `gomhc train`, or of a model with streams that save_pretrained wrote.
        text: Text that the model reads.
        file: File to read the text from.
        html: Also write a page with figures to this file.
        json_file: Also write all numbers to this file.
        max_tokens: Maximum number of tokens; the rest of the text is ignored.
    """
    if html is not None:
        with needs("report", "--html"):
            from gomhc.lab.report.inspection_page import inspection_page
    require_whole("max_tokens", max_tokens, 2)
    for output in (html, json_file):
        if output is not None:
            require_writable(output)
    if html is not None and html == json_file:
        raise ValueError(f"--html and --json must be different files, got {html} for both")
    if file is not None:
        if text != SAMPLE_TEXT:
            raise ValueError("give --text or --file, not both")
        text = read_text(file)
    network, encode, longest = _load_model(model)
    tokens = encode(text)[: min(max_tokens, longest)]
    if len(tokens) < 2:
        raise ValueError(f"the text must have at least two tokens, got {len(tokens)}; give a longer text")
    inspected = inspection.inspect(network, torch.tensor([tokens]))
    console = table_console(width=180)
    print_table(console, inspection_table(inspected))
    for sentence in (verdict(inspected), *findings(inspected)):
        console.print(f"• {sentence}")
    if json_file is not None:
        write_json(json_file, inspected.to_dict())
    if html is not None:
        page = inspection_page(inspected, f"Streams of {model.resolve().name}", text)
        write_atomically(html, page.html())
        print(f"wrote {html}")


def _load_model(folder: Path) -> tuple[torch.nn.Module, Callable[[str], list[int]], int]:
    """Return the model, its function from text to tokens, and its context length."""
    if not folder.is_dir():
        found = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
        raise ValueError(f"{found}; give the folder of a run of `gomhc train`, or one that save_pretrained wrote")
    if not (folder / "config.json").exists():
        with needs("train", "a run of gomhc train"):
            from gomhc.lab.training import load_run
        run = load_run(folder)
        if run.recipe.parametrization is None:
            raise ValueError(
                f"{folder} was trained with the mixing {run.recipe.mixing}, which has no streams to inspect"
            )
        return run.model, run.tokenizer.encode, run.model.config.context_length
    with needs("hf", "a model that save_pretrained wrote"):
        from transformers import AutoModelForCausalLM, AutoTokenizer
    config = json.loads(read_text(folder / "config.json"))
    changed = isinstance(config, dict) and "gomhc" in config
    load = gomhc.from_pretrained if changed else AutoModelForCausalLM.from_pretrained
    model: Any = load(folder)
    return model, AutoTokenizer.from_pretrained(folder).encode, model.config.max_position_embeddings
