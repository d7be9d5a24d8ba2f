"""How are judges asked? A few questions at a time, again where an endpoint fails, each until it has its answer."""

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

from gomhc.lab.judge.answers import MalformedAnswer, parse
from gomhc.lab.judge.options import Asking
from gomhc.lab.judge.protocol import Protocol
from gomhc.lab.judge.store import Answer, Question, Store
from gomhc.lab.judge.stories import whole_characters

LONGEST_PAUSE = 60.0
"""Seconds between two attempts, unless the endpoint asks for more."""
LONGEST_WAIT = 900.0
"""Seconds that an endpoint may ask to wait; beyond, it is better to come back later."""
MOST_SILENT = 5
"""Questions in a row that an endpoint may leave without an answer before it counts as out of reach."""
MOST_TOKENS = 10**9
"""Of one answer; an endpoint that counts more does not count."""
NO_KEY = "none"
"""Servers of one's own need no key, but the client does."""
REFUSALS = ("content_filter", "content_policy_violation")
"""Codes of errors that are about the story, not about the request."""


class EndpointError(Exception):
    """An endpoint that cannot be used; what has been answered is kept."""


class NoAnswer(Exception):
    """An attempt that brought no answer; another may."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def ask(
    questions: Sequence[Question],
    protocol: Protocol,
    asking: Asking,
    store: Store,
    tell: Callable[[str], None] = lambda trouble: None,
) -> Iterator[Question]:
    """Yield each question when its answer is in the store, or when it is given up for now (and can be asked again).

    `tell` hears why an attempt brought no answer.
    """
    with asyncio.Runner() as runner:
        arrived: asyncio.Queue[Question | Exception] = asyncio.Queue()
        asker = _Asker(protocol, asking, store, arrived, tell)
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
        store: Store,
        arrived: asyncio.Queue[Question | Exception],
        tell: Callable[[str], None],
    ) -> None:
        self.protocol, self.asking, self.store, self.arrived, self.tell = protocol, asking, store, arrived, tell
        self.key = _key()
        self.client = openai.AsyncOpenAI(
            base_url=asking.base_url, api_key=self.key, max_retries=0, timeout=asking.timeout
        )
        self.not_before = 0.0
        """When the endpoint wants to be asked again; all questions wait for it."""
        self.silent = 0
        """Questions in a row that were given up."""

    async def close(self) -> None:
        await self.client.close()

    async def work(self, waiting: Iterator[Question]) -> None:
        try:
            for question in waiting:
                answer = await self._answer(question)
                if answer is not None:
                    self.store.keep_answer(question, answer)
                self.arrived.put_nowait(question)
        except Exception as error:  # raised where the answers are waited for, and not lost with this worker
            self.arrived.put_nowait(error)

    async def _answer(self, question: Question) -> Answer | None:
        """The first answer with scores, or the last without; None if the endpoint was silent at the last attempt."""
        answers: list[Answer] = []
        for attempt in range(self.asking.attempts):
            if attempt > 0:
                await asyncio.sleep(self._pause(attempt))
            try:
                answers.append(await self._attempt(question, bad=len(answers)))
            except NoAnswer as error:
                answer, reason = None, str(error)
                self.tell(reason)
                self._hold_back(error.wait)
            else:
                answer, self.silent = answers[-1], 0
                if answer.scores is not None:
                    break
        if answer is None:
            self._give_up(reason)
            return None
        return replace(
            answer,
            input_tokens=sum(each.input_tokens for each in answers),
            output_tokens=sum(each.output_tokens for each in answers),
        )

    def _give_up(self, reason: str) -> None:
        self.silent += 1
        if self.silent >= MOST_SILENT:
            raise EndpointError(f"{self.silent} questions in a row were not answered, the last because: {reason}")

    def _hold_back(self, wait: float) -> None:
        if wait > LONGEST_WAIT:
            raise EndpointError(f"the endpoint asks to wait {wait:.0f} seconds; run the same command again then")
        self.not_before = max(self.not_before, time.monotonic() + wait)

    def _pause(self, attempt: int) -> float:
        """Twice as long each time, and never the same for two questions, so that they do not come back together."""
        return min(LONGEST_PAUSE, self.asking.pause * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)

    async def _attempt(self, question: Question, bad: int) -> Answer:
        while (wait := self.not_before - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        headers = {"Idempotency-Key": request_id(question, bad)}
        request = self.protocol.request(question.judge, question.story)
        try:
            async with asyncio.timeout(self.asking.timeout):
                completion = await self.client.chat.completions.create(**request, extra_headers=headers)
        except (TimeoutError, openai.APITimeoutError):
            raise NoAnswer(f"no answer within {self.asking.timeout:g} seconds") from None
        except openai.APIStatusError as error:
            return self._refused(error)
        except Exception as error:  # dropped, no JSON, JSON without end: whatever an endpoint can send
            raise NoAnswer(self._said(error)) from None
        return self._read(completion)

    def _refused(self, error: openai.APIStatusError) -> Answer:
        """What a status other than success means: for the story, for this attempt, or for all."""
        status, said = error.status_code, self._said(error)
        if error.code in REFUSALS:
            return Answer(scores=None, missing="refused", text=said)
        if (status == 429 and error.code != "insufficient_quota") or status in (408, 409, 425) or status >= 500:
            wait = retry_after(error.response.headers)
            asks = f" (asks to wait {wait:.0f} seconds)" if wait >= 1 else ""
            raise NoAnswer(f"HTTP {status}: {said}{asks}", wait) from None
        hint = "; is OPENAI_API_KEY set to a key of this endpoint?" if status in (401, 403) else ""
        raise EndpointError(f"the endpoint says HTTP {status}: {said}{hint}") from None

    def _read(self, completion: Any) -> Answer:
        """The scores in what the endpoint sent; no more is believed of it than is checked."""
        try:
            choice = completion.choices[0]
            text, finish = str(choice.message.content or ""), choice.finish_reason
        except (AttributeError, LookupError, TypeError):
            raise NoAnswer("the endpoint sent no chat completion") from None
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

    def _said(self, error: Exception) -> str:
        """The reason of an error in one short line."""
        body = getattr(error, "body", None)
        said = body.get("message") if isinstance(body, dict) else None
        line = " ".join(str(said or error.__cause__ or error).split()) or type(error).__name__
        return whole_characters(self._without_key(line)[:300])

    def _without_key(self, text: str) -> str:
        return text.replace(self.key, "[key]") if self.key != NO_KEY else text


def _key() -> str:
    """From the environment; what cannot stand in a header would be quoted in an error about it, in disguise."""
    key = os.environ.get("OPENAI_API_KEY", "").strip() or NO_KEY
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("OPENAI_API_KEY has characters that no key has; set it again")
    return key


def request_id(question: Question, bad: int) -> str:
    """The same while no answer has come: endpoints that know the header do not work twice for one that was lost.

    After a bad answer it is another one, or they would send that answer again.
    """
    return hashlib.sha256(repr((question.key, bad)).encode()).hexdigest()


def retry_after(headers: Any) -> float:
    """Seconds that an endpoint wants to be left alone: `Retry-After` as seconds or a date, or `retry-after-ms`."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        wait = float(milliseconds) / 1000 if milliseconds is not None else float(value)
    except (TypeError, ValueError):
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0.0
    return max(wait, 0.0) if math.isfinite(wait) else 0.0


def _count(usage: Any, name: str) -> int:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and 0 <= count <= MOST_TOKENS else 0
