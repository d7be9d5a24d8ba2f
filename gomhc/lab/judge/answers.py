"""What does a judge's answer say? Three whole numbers from 1 to 10, or nothing that counts."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Scores(NamedTuple):
    """One answer of a judge about one story."""

    grammar: int
    creativity: int
    consistency: int


CRITERIA = Scores._fields
LOWEST, HIGHEST = 1, 10

SCHEMA: dict[str, Any] = {
    "type": "object",
    # An enumeration, because not every server that follows schemas follows bounds.
    "properties": {name: {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))} for name in CRITERIA},
    "required": list(CRITERIA),
    "additionalProperties": False,
}


class MalformedAnswer(Exception):
    """An answer that does not follow the schema, and how."""


def parse(text: str) -> Scores:
    """The scores of an answer, which must be the JSON object and nothing else, but for a Markdown fence around it.

    Nothing is searched for inside the text: a judge that repeats the story would else be graded by the story.
    """
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n\s*```", text.strip(), flags=re.DOTALL)
    try:
        found = json.loads(fenced[1] if fenced else text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise MalformedAnswer("no JSON object alone") from None
    if not isinstance(found, dict) or set(found) != set(CRITERIA):
        raise MalformedAnswer(f"not an object of {', '.join(CRITERIA)}")
    for name, score in found.items():
        if type(score) is not int or not LOWEST <= score <= HIGHEST:
            raise MalformedAnswer(f"{name} is no whole number from {LOWEST} to {HIGHEST}")
    return Scores(**found)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)
