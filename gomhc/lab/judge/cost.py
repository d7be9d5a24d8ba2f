"""Cost of asking judges, estimated and actual: calls, tokens, and dollars if prices are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gomhc.lab.judge.answer_store import AnswerStore, Question
from gomhc.lab.judge.protocol import Protocol

CHARACTERS_A_TOKEN = 4.0
"""Characters per token of simple English, approximately, in the tokenizers of current judges."""
OVERHEAD = 100
"""Tokens of a request in addition to its text: roles and schema."""
ANSWER = 20
"""Tokens of an answer: three keys and three numbers. A judge that reasons first needs many more."""


Prices = tuple[float, float]
"""Dollars per million input tokens, and per million output tokens."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Number and tokens of some questions to one judge."""

    questions: int
    input_tokens: int
    output_tokens: int

    def describe(self, prices: Prices | None) -> str:
        """Describe the tokens, and the dollars if prices are given."""
        tokens = f"{self.input_tokens:,} input tokens and {self.output_tokens:,} output tokens"
        if prices is None:
            return tokens
        return f"{tokens}, ${(self.input_tokens * prices[0] + self.output_tokens * prices[1]) / 1e6:.2f}"


def estimate(questions: Sequence[Question], protocol: Protocol) -> Cost:
    """Estimate the cost of questions if each is answered at the first attempt."""
    tokens = sum(_input_tokens(question, protocol) for question in questions)
    return Cost(questions=len(questions), input_tokens=tokens, output_tokens=ANSWER * len(questions))


def spent(questions: Sequence[Question], store: AnswerStore) -> Cost:
    """Return the cost of the answered questions as the endpoint reported it; 0 tokens where it reported none."""
    answers = [answer for question in questions if (answer := store.answer(question)) is not None]
    return Cost(
        questions=len(answers),
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
    )


def _input_tokens(question: Question, protocol: Protocol) -> int:
    characters = sum(len(message["content"]) for message in protocol.prompts.messages(question.story))
    return math.ceil(characters / CHARACTERS_A_TOKEN) + OVERHEAD
