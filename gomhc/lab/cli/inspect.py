"""`gomhc inspect`: what do the streams of a model do?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

import gomhc
from gomhc import inspection
from gomhc.checks import require_whole
from gomhc.inspection.findings import findings
from gomhc.lab.cli.terminal import needs, write_json
from gomhc.lab.files import read_text, require_writable, write_atomically
from gomhc.lab.report.inspection_table import inspection_table
from gomhc.lab.training import load_run

SAMPLE_TEXT = (
    "Once upon a time there was a little boat that was afraid of the sea. Every morning the fishermen rowed out, and "
    "the little boat stayed in the harbour and watched them go. One day a storm came, and nobody saw the old man who "
    "had lost his oar. Then the little boat was not afraid any more. It went out, found him, and brought him home."
)
"""What a model reads if nothing else is asked for."""


def inspect(
    model: Annotated[Path, tyro.conf.Positional],
    text: str = SAMPLE_TEXT,
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None,
    max_tokens: int = 512,
) -> None:
    """Show what the streams of a model do on a text: coefficients, mixing, collapse, gain and gradients of every layer.

    Args:
        model: A run of `gomhc train`, or a folder that save_pretrained wrote, of a model with streams.
        text: What the model reads.
        file: Read the text from this file instead.
        html: Also write a page with pictures to this file.
        json_file: Also write all numbers to this file.
        max_tokens: Only the first tokens of the text are looked at.
    """
    if html is not None:
        with needs("report", "--html"):
            from gomhc.lab.report.inspection_page import inspection_page
    require_whole("max_tokens", max_tokens, 2)
    for output in (html, json_file):
        if output is not None:
            require_writable(output)
    if file is not None:
        text = read_text(file)
    network, encode, longest = _load_model(model)
    found = inspection.inspect(network, torch.tensor([encode(text)[: min(max_tokens, longest)]]))
    console = Console() if sys.stdout.isatty() else Console(width=180)
    console.print(inspection_table(found))
    for sentence in findings(found):
        console.print(f"• {sentence}")
    if json_file is not None:
        write_json(json_file, found.to_dict())
    if html is not None:
        write_atomically(html, inspection_page(found, f"Streams of {model.resolve().name}", text).html())
        print(f"wrote {html}")


def _load_model(folder: Path) -> tuple[torch.nn.Module, Callable[[str], list[int]], int]:
    """A model, what makes tokens of text for it, and how many it can see at once."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; expected a run of `gomhc train` or what save_pretrained wrote")
    if not (folder / "config.json").exists():
        run = load_run(folder)
        return run.model, run.tokenizer.encode, run.model.config.context_length
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError:
        sys.exit("models of transformers need gomhc[hf]; install it with: pip install 'gomhc[hf]'")
    config = json.loads(read_text(folder / "config.json"))
    changed = isinstance(config, dict) and "gomhc" in config
    load = gomhc.from_pretrained if changed else AutoModelForCausalLM.from_pretrained
    model: Any = load(folder)
    return model, AutoTokenizer.from_pretrained(folder).encode, model.config.max_position_embeddings
