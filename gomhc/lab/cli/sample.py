"""`gomhc sample`: text of a trained model."""

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
    """Sample text from a trained model and print it as it is generated.

    Args:
        run: Folder of the run, or of one of its checkpoints.
        prompt: Beginning of the text; by default the start of a document.
        tokens: Maximum number of tokens to generate.
        temperature: Sampling temperature; 0 always takes the most likely token.
        top_k: Number of most likely tokens to sample from; by default all.
        seed: Random seed; the same seed gives the same text.
    """
    require_whole("tokens", tokens, 0)
    require_number("temperature", temperature, least=0)
    require_whole("seed", seed, 0)
    if top_k is not None:
        require_whole("top_k", top_k, 1)
    trained = load_run(run)
    trained.tokenizer.encode(prompt)  # raises an error before anything is printed
    print(prompt, end="", flush=True)
    options: dict[str, Any] = {"num_tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
    for piece in stream_text(trained.model, trained.tokenizer, prompt, **options):
        print(piece, end="", flush=True)
    print()
