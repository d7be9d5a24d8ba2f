"""`gomhc sample`: what does a trained model write?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from gomhc.checks import require_number, require_whole
from gomhc.lab.training import load_run
from gomhc.lab.training.sampling import stream_text


def sample(
    run: Annotated[Path, tyro.conf.Positional],
    prompt: str = "",
    tokens: int = 500,
    temperature: float = 0.5,
    top_k: int | None = None,
    seed: int = 0,
) -> None:
    """Write text with a trained model, as it is made.

    Args:
        run: The folder of the run, or of one of its checkpoints.
        prompt: How the text begins; without, a document from its start.
        tokens: The most tokens that are made.
        temperature: How daring; 0 always takes the likeliest token.
        top_k: Only these many likeliest tokens are drawn from.
        seed: The same seed gives the same text.
    """
    require_whole("tokens", tokens, 0)
    require_number("temperature", temperature, least=0)
    require_whole("seed", seed, 0)
    if top_k is not None:
        require_whole("top_k", top_k, 1)
    found = load_run(run)
    found.tokenizer.encode(prompt)  # or an error, before anything is printed
    print(prompt, end="", flush=True)
    options: dict[str, Any] = {"num_tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
    for piece in stream_text(found.model, found.tokenizer, prompt, **options):
        print(piece, end="", flush=True)
    print()
