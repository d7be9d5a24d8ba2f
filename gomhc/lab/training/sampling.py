"""Sampling of text from a model, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gomhc.lab.data.tokenizers import Tokenizer
from gomhc.models import GPT

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""The character to which the bytes of an incomplete character are decoded."""


def stream_text(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    num_tokens: int,
    temperature: float = 0.5,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """Yield the text that follows the prompt, up to the end of the document or `num_tokens`.

    An empty prompt starts a new document.
    """
    device = model.tokens.weight.device
    start = tokenizer.encode(prompt) or [tokenizer.end_of_text if tokenizer.end_of_text is not None else 0]
    generator = torch.Generator(device).manual_seed(seed)
    tokens = torch.tensor([start], device=device)
    pending: list[int] = []
    options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "generator": generator}
    for (token,) in (next_token.tolist()[0] for next_token in model.stream(tokens, num_tokens, **options)):
        if token == tokenizer.end_of_text:
            break
        pending.append(token)
        text = tokenizer.decode(pending)
        if not text.endswith(UNFINISHED):
            yield text
            pending.clear()
    if pending:
        yield tokenizer.decode(pending)
