"""Which stories are judged? Sampled from a training run with fixed seeds, or read from a file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gomhc.checks import require_number, require_whole
from gomhc.lab.data.tokenizers import Tokenizer
from gomhc.lab.files import read_text
from gomhc.lab.training import load_run
from gomhc.models import GPT

OPENINGS = Path(__file__).parent / "openings.txt"


@dataclass(frozen=True)
class Story:
    """How a story begins, and how a model went on."""

    opening: str
    completion: str

    @property
    def key(self) -> str:
        """A hash of both."""
        return hashlib.sha256(json.dumps([self.opening, self.completion]).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How stories are drawn from a model; nanoGPT's values."""

    story_tokens: int = 300
    """The most tokens that a story goes on for."""
    story_temperature: float = 0.8
    """Below 1 prefers likely tokens; 0 takes the likeliest."""
    top_k: int = 200
    """Only this many likeliest tokens can be drawn."""
    seed: int = 0
    """Of the draws; the same seed gives the same stories."""

    def __post_init__(self) -> None:
        require_whole("story_tokens", self.story_tokens, 1)
        require_whole("top_k", self.top_k, 1)
        require_number("story_temperature", self.story_temperature, least=0)
        require_whole("seed", self.seed, 0, 2**40)

    def key(self, openings: Sequence[str]) -> str:
        """A hash of all that the draws depend on but the weights: stories drawn otherwise are other stories."""
        return hashlib.sha256(json.dumps([asdict(self), list(openings)], sort_keys=True).encode()).hexdigest()


def load_openings(file: Path | None = None) -> list[str]:
    """One opening a line, empty lines do not count; by default gomhc's 70."""
    file = file or OPENINGS
    try:
        lines = [line.strip() for line in read_text(file).splitlines()]
    except (OSError, ValueError) as error:
        raise ValueError(f"openings must be a text file with one a line; {file}: {error}") from None
    openings = [line for line in lines if line]
    if not openings or len(set(openings)) < len(openings):
        raise ValueError(f"{file} must have at least one opening and none twice, has {len(openings)}")
    return openings


def load_model(directory: Path) -> tuple[GPT, Tokenizer]:
    """The model and the tokenizer of a run of `gomhc train`."""
    run = load_run(directory)
    return run.model, run.tokenizer


def read_stories(file: Path) -> list[Story]:
    """Stories from JSON lines, `{"opening": "...", "completion": "..."}` each."""
    stories = []
    try:
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            if line.strip():
                stories.append(_story(json.loads(line), f"line {number}"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f'stories are lines of {{"opening": "...", "completion": "..."}}, no opening twice; {file}: {error}'
        ) from None
    if not stories or len({story.opening for story in stories}) < len(stories):
        raise ValueError(f"{file} must have at least one story and no opening twice, has {len(stories)} stories")
    return stories


def weights_key(model: nn.Module) -> str:
    """A hash of all weights: stories of a run that was trained further are drawn again."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def sample(model: GPT, tokenizer: Tokenizer, openings: Sequence[str], sampling: Sampling) -> Iterator[Story]:
    """A story for each opening, in no particular order; openings of equally many tokens are one batch."""
    batches: dict[int, list[tuple[str, list[int]]]] = defaultdict(list)
    for opening in openings:
        try:
            tokens = tokenizer.encode(opening)
        except ValueError as error:
            raise ValueError(f"{error}; give openings that the model can spell by --openings FILE") from None
        batches[len(tokens)].append((opening, tokens))
    for length, batch in sorted(batches.items()):
        generator = torch.Generator().manual_seed(1_000_003 * sampling.seed + length)
        prompt = torch.tensor([tokens for _, tokens in batch])
        drawn = _draw(model, prompt, sampling, generator, tokenizer.end_of_text)
        for (opening, _), tokens in zip(batch, drawn, strict=True):
            yield Story(opening, tokenizer.decode(tokens))


def _draw(
    model: GPT, prompt: Tensor, sampling: Sampling, generator: torch.Generator, end_of_text: int | None
) -> list[list[int]]:
    """The tokens that follow each row of the prompt, up to the end of the text."""
    steps = model.stream(
        prompt,
        sampling.story_tokens,
        temperature=sampling.story_temperature,
        top_k=sampling.top_k,
        generator=generator,
    )
    stories: list[list[int]] = [[] for _ in range(len(prompt))]
    ended: set[int] = set()
    for step in steps:
        for row, token in enumerate(step[:, 0].tolist()):
            if token == end_of_text:
                ended.add(row)
            if row not in ended:
                stories[row].append(token)
        if len(ended) == len(stories):
            break
    return stories


def _story(line: Any, place: str) -> Story:
    if not isinstance(line, dict) or not all(isinstance(line.get(name), str) for name in ("opening", "completion")):
        raise ValueError(f"{place} is something else")
    return Story(whole_characters(line["opening"]), whole_characters(line["completion"]))


def whole_characters(text: str) -> str:
    """JSON can name halves of characters, which can be neither sent nor kept: replaced by a mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
