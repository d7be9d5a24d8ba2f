"""Concurrent requests to an OpenAI-compatible endpoint, with retries and pauses."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from gomhc.lab.judge.answer_store import Answer, AnswerStore, Question
from gomhc.lab.judge.answers import MalformedAnswer, parse
from gomhc.lab.judge.options import Asking
from gomhc.lab.judge.protocol import Protocol
from gomhc.lab.judge.stories import whole_characters

LONGEST_PAUSE = 60.0
"""Maximum number of seconds between two attempts, unless the endpoint asks for more."""
LONGEST_WAIT = 900.0
"""Maximum number of seconds that an endpoint may ask to wait; beyond it, asking stops."""
MOST_UNANSWERED = 5
"""Number of consecutive unanswered questions after which the endpoint counts as unreachable."""
MOST_TOKENS = 10**9
"""Maximum token count of an answer; larger reports are ignored."""
NO_KEY = "none"
"""Key for servers that need none; the client requires one."""
REFUSALS = ("content_filter", "content_policy_violation")
"""Error codes that mean that the judge refuses the story."""


class EndpointError(Exception):
    """The endpoint cannot be used; the answers so far are stored."""


class NoAnswer(Exception):
    """An attempt got no answer; another attempt may."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def ask(
    questions: Sequence[Question],
    protocol: Protocol,
    asking: Asking,
    store: AnswerStore,
    on_failure: Callable[[str], None] = lambda reason: None,
) -> Iterator[Question]:
    """Yield each question when its answer is in the store, or when all attempts failed (it can be asked again later).

    `on_failure` is called with the reason of each failed attempt.
    """
    with asyncio.Runner() as runner:
        arrived: asyncio.Queue[Question | Exception] = asyncio.Queue()
        asker = _Asker(protocol, asking, store, arrived, on_failure)
        waiting = iter(questions)
        workers = [runner.get_loop().create_task(asker.work(waiting)) for _ in range(asking.concurrency)]
        try:
            for _ in questions:
                outcome = runner.run(arrived.get())
                if isinstance(outcome, Exception):
                    raise outcome
                yield outcome
        finally:
            for worker in workers:
                worker.cancel()
            runner.run(asker.close())


class _Asker:
    def __init__(
        self,
        protocol: Protocol,
        asking: Asking,
        store: AnswerStore,
        arrived: asyncio.Queue[Question | Exception],
        on_failure: Callable[[str], None],
    ) -> None:
        self.protocol, self.asking, self.store = protocol, asking, store
        self.arrived, self.on_failure = arrived, on_failure
        self.key = _key()
        self.client = openai.AsyncOpenAI(
            base_url=asking.base_url, api_key=self.key, max_retries=0, timeout=asking.timeout
        )
        self.not_before = 0.0
        """Monotonic time before which the endpoint wants no requests; all questions wait for it."""
        self.unanswered = 0
        """Number of consecutive questions without an answer."""

    async def close(self) -> None:
        await self.client.close()

    async def work(self, waiting: Iterator[Question]) -> None:
        try:
            for question in waiting:
                answer = await self._answer(question)
                if answer is not None:
                    self.store.keep_answer(question, answer)
                self.arrived.put_nowait(question)
        except Exception as error:  # raised in `ask`, not lost with this worker
            self.arrived.put_nowait(error)

    async def _answer(self, question: Question) -> Answer | None:
        """Return the first answer with scores, or the last one without; None if the last attempt got no answer."""
        answers: list[Answer] = []
        for attempt in range(self.asking.attempts):
            if attempt > 0:
                await asyncio.sleep(self._pause(attempt))
            try:
                answers.append(await self._attempt(question, num_invalid=len(answers)))
            except NoAnswer as error:
                answer, reason = None, str(error)
                self.on_failure(reason)
                self._hold_back(error.wait)
            else:
                answer, self.unanswered = answers[-1], 0
                if answer.scores is not None:
                    break
        if answer is None:
            self._give_up(reason)
            return None
        return replace(
            answer,
            input_tokens=sum(one.input_tokens for one in answers),
            output_tokens=sum(one.output_tokens for one in answers),
        )

    def _give_up(self, reason: str) -> None:
        self.unanswered += 1
        if self.unanswered >= MOST_UNANSWERED:
            raise EndpointError(f"{self.unanswered} questions in a row got no answer; the last reason: {reason}")

    def _hold_back(self, wait: float) -> None:
        if wait > LONGEST_WAIT:
            raise EndpointError(f"the endpoint asks to wait {wait:.0f} seconds; run the same command again after that")
        self.not_before = max(self.not_before, time.monotonic() + wait)

    def _pause(self, attempt: int) -> float:
        """Exponential backoff with jitter, so that failed questions are not all asked again at the same time."""
        return min(LONGEST_PAUSE, self.asking.pause * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)

    async def _attempt(self, question: Question, num_invalid: int) -> Answer:
        while (wait := self.not_before - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        headers = {"Idempotency-Key": request_id(question, num_invalid)}
        request = self.protocol.request(question.judge, question.story)
        try:
            async with asyncio.timeout(self.asking.timeout):
                completion = await self.client.chat.completions.create(**request, extra_headers=headers)
        except (TimeoutError, openai.APITimeoutError):
            raise NoAnswer(f"no answer within {self.asking.timeout:g} seconds") from None
        except openai.APIStatusError as error:
            return self._refused(error)
        except Exception as error:  # dropped connections, invalid JSON: anything an endpoint can send
            raise NoAnswer(self._message(error)) from None
        return self._read(completion)

    def _refused(self, error: openai.APIStatusError) -> Answer:
        """Handle a status other than success: the story is refused, the attempt failed, or the endpoint is unusable."""
        status, message = error.status_code, self._message(error)
        if error.code in REFUSALS:
            return Answer(scores=None, missing="refused", text=message)
        if (status == 429 and error.code != "insufficient_quota") or status in (408, 409, 425) or status >= 500:
            wait = retry_after(error.response.headers)
            asks = f" (asks to wait {wait:.0f} seconds)" if wait >= 1 else ""
            raise NoAnswer(f"HTTP {status}: {message}{asks}", wait) from None
        hint = "; is OPENAI_API_KEY set to a key of this endpoint?" if status in (401, 403) else ""
        raise EndpointError(f"the endpoint answers HTTP {status}: {message}{hint}") from None

    def _read(self, completion: Any) -> Answer:
        """Return the answer in a completion; nothing in it is trusted before it is checked."""
        try:
            choice = completion.choices[0]
            text, finish = str(choice.message.content or ""), choice.finish_reason
        except (AttributeError, LookupError, TypeError):
            raise NoAnswer("the endpoint did not send a chat completion") from None
        scores, missing, refusal = None, None, getattr(choice.message, "refusal", None)
        if refusal or finish == "content_filter":
            text, missing = str(refusal or text), "refused"
        else:
            try:
                scores = parse(text)
            except MalformedAnswer as error:
                missing = "cut off" if finish == "length" else str(error)
        text = whole_characters(self._without_key(text))
        usage = getattr(completion, "usage", None)
        tokens_in, tokens_out = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        return Answer(scores=scores, missing=missing, text=text, input_tokens=tokens_in, output_tokens=tokens_out)

    def _message(self, error: Exception) -> str:
        """Return the reason of an error in one short line."""
        body = getattr(error, "body", None)
        message = body.get("message") if isinstance(body, dict) else None
        line = " ".join(str(message or error.__cause__ or error).split()) or type(error).__name__
        return whole_characters(self._without_key(line)[:300])

    def _without_key(self, text: str) -> str:
        return text.replace(self.key, "[key]") if self.key != NO_KEY else text


def _key() -> str:
    """Return the key in the environment. Refuse one that no header can hold: the error of the client would quote it."""
    key = os.environ.get("OPENAI_API_KEY", "").strip() or NO_KEY
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("OPENAI_API_KEY must be printable ASCII without spaces; set it again")
    return key


def request_id(question: Question, num_invalid: int) -> str:
    """Return the idempotency key of an attempt after `num_invalid` answers without scores.

    It stays the same while no answer arrives, so that an endpoint does not compute a lost answer twice. It changes
    after an invalid answer, or the endpoint would send that answer again.
    """
    return hashlib.sha256(repr((question.key, num_invalid)).encode()).hexdigest()


def retry_after(headers: Any) -> float:
    """Return the seconds in `retry-after-ms` or `Retry-After`, which is a number or a date; 0 if there is neither."""
    milliseconds, seconds_or_date = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        wait = float(milliseconds) / 1000 if milliseconds is not None else float(seconds_or_date)
    except (TypeError, ValueError):
        try:
            wait = parsedate_to_datetime(seconds_or_date).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0.0
    return max(wait, 0.0) if math.isfinite(wait) else 0.0


def _count(usage: Any, name: str) -> int:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and 0 <= count <= MOST_TOKENS else 0
