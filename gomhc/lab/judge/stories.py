"""The stories that are judged: sampled from a training run with fixed seeds, or read from a file."""

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
    """The given opening of a story, and the completion by a model."""

    opening: str
    completion: str

    @property
    def key(self) -> str:
        """Hash of opening and completion."""
        return hashlib.sha256(json.dumps([self.opening, self.completion]).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How stories are sampled from a model; the defaults are nanoGPT's."""

    story_tokens: int = 300
    """Maximum number of tokens of a completion."""
    story_temperature: float = 0.8
    """Sampling temperature of the stories; 0 always takes the most likely token."""
    top_k: int = 200
    """Number of most likely tokens to sample from."""
    seed: int = 0
    """Random seed of the sampling."""

    def __post_init__(self) -> None:
        require_whole("story_tokens", self.story_tokens, 1)
        require_whole("top_k", self.top_k, 1)
        require_number("story_temperature", self.story_temperature, least=0)
        require_whole("seed", self.seed, 0, 2**40)

    def key(self, openings: Sequence[str]) -> str:
        """Return a hash of everything that the stories depend on except the weights."""
        return hashlib.sha256(json.dumps([asdict(self), list(openings)], sort_keys=True).encode()).hexdigest()


def load_openings(file: Path | None = None) -> list[str]:
    """Read openings, one per line, without empty lines; by default the 70 that come with gomhc."""
    file = file or OPENINGS
    try:
        lines = [line.strip() for line in read_text(file).splitlines()]
    except (OSError, ValueError) as error:
        raise ValueError(f"openings must be a text file with one opening per line; {file}: {error}") from None
    openings = [line for line in lines if line]
    if not openings or len(set(openings)) < len(openings):
        raise ValueError(f"{file} must have at least one opening, and no opening twice, got {len(openings)} openings")
    return openings


def load_model(directory: Path) -> tuple[GPT, Tokenizer]:
    """Return the model and the tokenizer of a run of `gomhc train`."""
    run = load_run(directory)
    return run.model, run.tokenizer


def read_stories(file: Path) -> list[Story]:
    """Read stories from lines of `{"opening": "...", "completion": "..."}`."""
    stories = []
    try:
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            if line.strip():
                stories.append(_story(json.loads(line), f"line {number}"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f'stories must be lines of {{"opening": "...", "completion": "..."}}; {file}: {error}'
        ) from None
    if not stories or len({story.opening for story in stories}) < len(stories):
        raise ValueError(f"{file} must have at least one story, and no opening twice, got {len(stories)} stories")
    return stories


def weights_key(model: nn.Module) -> str:
    """Return a hash of all weights; stories are stored under it, and sampled again if the run is trained further."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sample(model: GPT, tokenizer: Tokenizer, openings: Sequence[str], sampling: Sampling) -> Iterator[Story]:
    """Yield a story for each opening, in any order; openings with the same number of tokens form a batch."""
    batches: dict[int, list[tuple[str, list[int]]]] = defaultdict(list)
    for opening in openings:
        try:
            tokens = tokenizer.encode(opening)
        except ValueError as error:
            raise ValueError(f"{error}; choose openings that the model can spell with --openings FILE") from None
        batches[len(tokens)].append((opening, tokens))
    for length, batch in sorted(batches.items()):
        generator = torch.Generator().manual_seed(1_000_003 * sampling.seed + length)
        prompt = torch.tensor([tokens for _, tokens in batch])
        completions = _complete(model, prompt, sampling, generator, tokenizer.end_of_text)
        for (opening, _), tokens in zip(batch, completions, strict=True):
            yield Story(opening, tokenizer.decode(tokens))


def _complete(
    model: GPT, prompt: Tensor, sampling: Sampling, generator: torch.Generator, end_of_text: int | None
) -> list[list[int]]:
    """Return the tokens that follow each row of the prompt, up to the end of the text."""
    steps = model.stream(
        prompt,
        sampling.story_tokens,
        temperature=sampling.story_temperature,
        top_k=sampling.top_k,
        generator=generator,
    )
    completions: list[list[int]] = [[] for _ in range(len(prompt))]
    ended: set[int] = set()
    for step in steps:
        for row, token in enumerate(step[:, 0].tolist()):
            if token == end_of_text:
                ended.add(row)
            if row not in ended:
                completions[row].append(token)
        if len(ended) == len(completions):
            break
    return completions


def _story(line: Any, place: str) -> Story:
    if not isinstance(line, dict) or not all(isinstance(line.get(name), str) for name in ("opening", "completion")):
        raise ValueError(f"{place} is not such an object")
    return Story(whole_characters(line["opening"]), whole_characters(line["completion"]))


def whole_characters(text: str) -> str:
    """Replace unpaired surrogates, which JSON can escape but UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
