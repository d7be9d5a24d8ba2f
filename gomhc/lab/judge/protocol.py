"""What exactly is a judge asked? Prompts, which are files, and the settings of the request."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gomhc.checks import require_number, require_whole
from gomhc.lab.files import read_text
from gomhc.lab.judge.answers import SCHEMA
from gomhc.lab.judge.stories import Story

PROMPTS = Path(__file__).parent / "prompts"
PLACE = "{{story}}"
"""Stands in the user prompt for the story, which comes as a JSON object: no text in it can end it."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """What is said to a judge."""

    system: str
    """What it is to do; the whole of system.txt."""
    user: str
    """What comes with a story, with {{story}} in its place; the whole of user.txt."""

    @classmethod
    def load(cls, directory: Path | None = None) -> Prompts:
        """Read `system.txt` and `user.txt`; by default gomhc's."""
        directory = directory or PROMPTS
        try:
            system, user = (read_text(directory / name) for name in ("system.txt", "user.txt"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"prompts must be a directory with system.txt and user.txt; {directory}: {error}"
            ) from None
        if user.count(PLACE) != 1:
            raise ValueError(f"{directory / 'user.txt'} must have {PLACE} once, has it {user.count(PLACE)} times")
        return cls(system=system.strip(), user=user.strip())

    def messages(self, story: Story) -> list[dict[str, str]]:
        """The conversation that asks about a story."""
        text = json.dumps({"beginning": story.opening, "completion": story.completion}, ensure_ascii=False, indent=1)
        user = self.user.replace(PLACE, text)  # once: what is put in is not looked through again
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a judge answers."""

    temperature: float | None = None
    """Of the judge; by default the endpoint's own, which for trials to be independent must not be 0."""
    answer_format: Literal["schema", "json", "text"] = "schema"
    """How the endpoint holds the judge to JSON: by our schema, to any JSON, or not at all."""
    answer_tokens: int = 1000
    """The most tokens of an answer; judges that think first may need more."""

    def __post_init__(self) -> None:
        require_whole("answer_tokens", self.answer_tokens, 1)
        if self.temperature is not None:
            require_number("temperature", self.temperature, least=0)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """All that shapes an answer but the judge and the story."""

    prompts: Prompts
    settings: Settings

    @property
    def text(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def key(self) -> str:
        """A hash: answers to other prompts or settings are other answers."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def request(self, judge: str, story: Story) -> dict[str, Any]:
        """The arguments of the chat completion."""
        optional: dict[str, Any] = {}
        if self.settings.temperature is not None:
            optional["temperature"] = self.settings.temperature
        if self.settings.answer_format == "schema":
            schema = {"name": "scores", "strict": True, "schema": SCHEMA}
            optional["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.settings.answer_format == "json":
            optional["response_format"] = {"type": "json_object"}
        messages = self.prompts.messages(story)
        return {"model": judge, "messages": messages, "max_completion_tokens": self.settings.answer_tokens, **optional}
