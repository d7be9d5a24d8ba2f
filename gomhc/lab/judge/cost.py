"""What will it cost to ask, and what has it cost? Calls, tokens, and money if prices are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.lab.judge.protocol import Protocol
from gomhc.lab.judge.store import Question, Store

CHARACTERS_A_TOKEN = 4.0
"""Of simple English, about, in the tokenizers of today's judges."""
OVERHEAD = 100
"""Tokens of a request beside its text: roles, and the schema in words."""
ANSWER = 20
"""Tokens of an answer: three keys and three numbers. A judge that thinks first needs many more."""


Prices = tuple[float, float]
"""Dollars a million tokens that go in and come out."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of some questions to one judge."""

    questions: int
    input_tokens: int
    output_tokens: int

    def tell(self, prices: Prices | None) -> str:
        """Tokens, and money if prices are given."""
        tokens = f"{self.input_tokens:,} tokens in and {self.output_tokens:,} out"
        if prices is None:
            return tokens
        return f"{tokens}, ${(self.input_tokens * prices[0] + self.output_tokens * prices[1]) / 1e6:.2f}"


def estimate(questions: Sequence[Question], protocol: Protocol) -> Cost:
    """What questions will cost if each is answered at once."""
    tokens = sum(_input_tokens(question, protocol) for question in questions)
    return Cost(questions=len(questions), input_tokens=tokens, output_tokens=ANSWER * len(questions))


def spent(questions: Sequence[Question], store: Store) -> Cost:
    """What the questions that have an answer have cost, as the endpoint counted; it may not have counted."""
    answers = [answer for question in questions if (answer := store.answer(question)) is not None]
    return Cost(
        questions=len(answers),
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
    )


def _input_tokens(question: Question, protocol: Protocol) -> int:
    characters = sum(len(message["content"]) for message in protocol.prompts.messages(question.story))
    return math.ceil(characters / CHARACTERS_A_TOKEN) + OVERHEAD
