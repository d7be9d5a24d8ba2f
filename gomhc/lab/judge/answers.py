"""Parsing of a judge's answer: a JSON object with three whole numbers from 1 to 10."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Scores(NamedTuple):
    """The scores of one judge for one story."""

    grammar: int
    creativity: int
    consistency: int


CRITERIA = Scores._fields
LOWEST, HIGHEST = 1, 10

SCHEMA: dict[str, Any] = {
    "type": "object",
    # An enumeration, because some servers that follow schemas ignore minimum and maximum.
    "properties": {name: {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))} for name in CRITERIA},
    "required": list(CRITERIA),
    "additionalProperties": False,
}


class MalformedAnswer(Exception):
    """The answer does not follow the schema; the message says how."""


def parse(text: str) -> Scores:
    """Return the scores of an answer, which must be a JSON object and nothing else, except for a Markdown fence.

    The text is not searched for JSON: if a judge repeats the story, an object in the story must not become its score.
    """
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n\s*```", text.strip(), flags=re.DOTALL)
    try:
        scores = json.loads(fenced[1] if fenced else text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise MalformedAnswer("not a single JSON object") from None
    if not isinstance(scores, dict) or set(scores) != set(CRITERIA):
        raise MalformedAnswer(f"not an object with the keys {', '.join(CRITERIA)}")
    for name, score in scores.items():
        if type(score) is not int or not LOWEST <= score <= HIGHEST:
            raise MalformedAnswer(f"{name} is not a whole number from {LOWEST} to {HIGHEST}")
    return Scores(**scores)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)
