"""What will it cost to ask? Calls, tokens, and money if prices are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.judge.protocol import Protocol
from gomhc.judge.store import Question

CHARACTERS_A_TOKEN = 4.0
"""Of simple English, about, in the tokenizers of today's judges."""
OVERHEAD = 100
"""Tokens of a request beside its text: roles, and the schema in words."""
ANSWER = 20
"""Tokens of an answer: three keys and three numbers. A judge that thinks first needs many more."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one judge is still to be asked; tokens are estimates."""

    judge: str
    calls: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    """None without prices."""


def estimate(judge: str, questions: Sequence[Question], protocol: Protocol, prices: tuple[float, float] | None) -> Cost:
    """The cost of a judge's questions; prices are dollars a million tokens that go in and come out."""
    asked = [question for question in questions if question.judge == judge]
    tokens_in = sum(_input_tokens(question, protocol) for question in asked)
    tokens_out = ANSWER * len(asked)
    dollars = None if prices is None else (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6
    return Cost(judge=judge, calls=len(asked), input_tokens=tokens_in, output_tokens=tokens_out, dollars=dollars)


def _input_tokens(question: Question, protocol: Protocol) -> int:
    characters = sum(len(message["content"]) for message in protocol.prompts.messages(question.story))
    return math.ceil(characters / CHARACTERS_A_TOKEN) + OVERHEAD
