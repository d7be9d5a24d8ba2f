"""The request to a judge: prompts, which are files, and settings."""

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
"""Placeholder of the story in the user prompt; the story is a JSON object, so that no text in it can end it."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The system prompt and the user prompt."""

    system: str
    """Instructions: the content of system.txt."""
    user: str
    """Text around the story, with {{story}} in its place: the content of user.txt."""

    @classmethod
    def load(cls, directory: Path | None = None) -> Prompts:
        """Read `system.txt` and `user.txt`, by default those that come with gomhc."""
        directory = directory or PROMPTS
        try:
            system, user = (read_text(directory / name) for name in ("system.txt", "user.txt"))
        except (OSError, ValueError) as error:
            raise ValueError(f"prompts must be a folder with system.txt and user.txt; {directory}: {error}") from None
        if user.count(PLACE) != 1:
            raise ValueError(f"{directory / 'user.txt'} must contain {PLACE} once, got it {user.count(PLACE)} times")
        return cls(system=system.strip(), user=user.strip())

    def messages(self, story: Story) -> list[dict[str, str]]:
        """Return the messages that ask about a story."""
        text = json.dumps({"beginning": story.opening, "completion": story.completion}, ensure_ascii=False, indent=1)
        user = self.user.replace(PLACE, text)  # the text of the story is not searched for placeholders
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the request that change the answer."""

    temperature: float | None = None
    """Temperature of the judge; by default the endpoint's. At 0, the trials are not independent."""
    answer_format: Literal["schema", "json", "text"] = "schema"
    """How the endpoint constrains the answer: to gomhc's JSON schema, to any JSON, or not at all."""
    answer_tokens: int = 1000
    """Maximum number of tokens of an answer; judges that reason first may need more."""

    def __post_init__(self) -> None:
        require_whole("answer_tokens", self.answer_tokens, 1)
        if self.temperature is not None:
            require_number("temperature", self.temperature, least=0)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything that determines an answer except the judge and the story."""

    prompts: Prompts
    settings: Settings

    @property
    def text(self) -> str:
        """The protocol as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def key(self) -> str:
        """Hash of the protocol; answers are stored under it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def request(self, judge: str, story: Story) -> dict[str, Any]:
        """Return the arguments of the chat completion."""
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
