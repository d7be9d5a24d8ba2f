"""A judge on the loopback address that misbehaves on purpose, and counts what it is asked and what it answers."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gomhc.lab.judge.answer_store import Question
from gomhc.lab.judge.answers import CRITERIA
from gomhc.lab.judge.asking import request_id

SILENT = (
    "429",
    "429 with a date",
    "500",
    "503",
    "time-out",
    "dropped",
    "cut body",
    "no JSON",
    "no UTF-8",
    "[]",
    "HTML",
    "choices that are an object",
    "choices that are a number",
    "a message that is a number",
    "lists in lists",
    "a number of 5,000 digits",
    "another charset",
)
"""Kinds of misbehaviour that bring no answer."""
BAD = (
    "cut answer",
    "out of range",
    "half point",
    "words",
    "empty",
    "refusal",
    "filtered",
    "filtered request",
    "echo",
    "half a character",
    "countless tokens",
)
"""Kinds that bring an answer that does not count."""


def right_scores(question: Question) -> tuple[int, ...]:
    """What the server will answer: any three numbers, but always the same."""
    return tuple(byte % 10 + 1 for byte in hashlib.sha256(repr(question.key).encode()).digest()[: len(CRITERIA)])


@dataclass
class Judge:
    """`behave(question, n)` says how the n-th request for a question is met: "right", "hold", or some misbehaviour."""

    questions: Iterable[Question]
    behave: Callable[[Question, int], str] = lambda question, n: "right"
    think: float = 0.0
    asked: Counter = field(default_factory=Counter)
    answered: Counter = field(default_factory=Counter)
    times: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    held: int = 0
    under_way: int = 0
    most_under_way: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def __post_init__(self) -> None:
        self.by_id = {request_id(question, bad): question for question in self.questions for bad in range(9)}


@contextmanager
def serve(judge: Judge):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            _answer(self, judge)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that was killed is no news
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield judge
    finally:
        judge.released.set()
        server.shutdown()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, judge: Judge) -> None:
    request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
    question = judge.by_id[handler.headers["Idempotency-Key"]]
    with judge.lock:
        judge.asked[question] += 1
        judge.times.append(time.time())
        judge.requests.append(request)
        judge.keys.append(handler.headers["Authorization"])
        kind = judge.behave(question, judge.asked[question])
        judge.under_way += 1
        judge.most_under_way = max(judge.most_under_way, judge.under_way)
    scores = dict(zip(CRITERIA, right_scores(question), strict=True))
    secret = handler.headers.get("Authorization", "")
    if kind == "right":
        time.sleep(judge.think)
        with judge.lock:
            judge.answered[question] += 1
            judge.under_way -= 1
        return _complete(handler, json.dumps(scores))
    if kind == "hold":
        with judge.lock:
            judge.held += 1
        judge.released.wait()
        return _drop(handler)
    if kind == "time-out":
        judge.released.wait(20)
        return _drop(handler)
    if kind == "dropped":
        return _drop(handler)
    if kind == "cut body":
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "500")
        handler.end_headers()
        handler.wfile.write(b'{"choices": [{"mess')
        return _drop(handler)
    errors = {
        "429": (429, {"Retry-After": "0"}),
        "429 for a second": (429, {"Retry-After": "1"}),
        "429 with a date": (429, {"Retry-After": formatdate(time.time() - 5, usegmt=True)}),
        "429 until tomorrow": (429, {"Retry-After": "86400"}),
        "500": (500, {}),
        "503": (503, {"retry-after-ms": "10"}),
        "401": (401, {}),
        "404": (404, {}),
    }
    if kind in errors:
        status, headers = errors[kind]
        return _send(handler, status, json.dumps({"error": {"message": f"not now, {secret}"}}), headers)
    if kind == "no quota":
        return _send(handler, 429, json.dumps({"error": {"message": "pay first", "code": "insufficient_quota"}}))
    if kind == "filtered request":
        return _send(handler, 400, json.dumps({"error": {"message": f"no {secret}", "code": "content_filter"}}))
    if kind == "no JSON":
        return _send(handler, 200, '{"choices": [{"message"')
    if kind == "no UTF-8":
        return _send(handler, 200, b'{"choices": "\xff\xfe\xff"}')
    if kind == "[]":
        return _send(handler, 200, '{"choices": []}')
    if kind == "choices that are an object":
        return _send(handler, 200, '{"choices": {"a": 1}}')
    if kind == "choices that are a number":
        return _send(handler, 200, '{"choices": 1}')
    if kind == "a message that is a number":
        return _send(handler, 200, '{"choices": [{"message": 1, "finish_reason": 2}]}')
    if kind == "lists in lists":
        return _send(handler, 200, "[" * 100_000 + "]" * 100_000)
    if kind == "a number of 5,000 digits":
        return _send(handler, 200, '{"choices": [], "usage": {"prompt_tokens": ' + "9" * 5000 + "}}")
    if kind == "another charset":
        return _send(handler, 200, "{}", {"Content-Type": "text/plain; charset=hex"})
    if kind == "HTML":
        return _send(handler, 200, "<html>please log in</html>", {"Content-Type": "text/html"})
    if kind in ("refusal", "filtered"):
        message = {"role": "assistant", "content": None, "refusal": f"I will not, {secret}"}
        if kind == "filtered":
            message = {"role": "assistant", "content": json.dumps(scores)}
        return _complete(handler, "", message, "stop" if kind == "refusal" else "content_filter")
    contents = {
        "cut answer": '{"grammar": 5, "creat',
        "out of range": '{"grammar": 11, "creativity": 0, "consistency": 5}',
        "half point": '{"grammar": 5.5, "creativity": 5, "consistency": 5}',
        "words": f"I would say {json.dumps(scores)}, {secret}",
        "empty": "",
        "echo": request["messages"][-1]["content"],
        "half a character": "\ud83d",
        "countless tokens": "{}",
    }
    return _complete(handler, contents[kind], prompt_tokens=10**30 if kind == "countless tokens" else 300)


def _complete(handler, content, message=None, finish="stop", prompt_tokens=300):
    message = message or {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 17, "total_tokens": 317}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    _send(handler, 200, json.dumps(body))


def _send(handler, status, body, headers=None):
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        handler.send_header(name, value)
    body = body if isinstance(body, bytes) else body.encode()
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _drop(handler):
    handler.close_connection = True
    handler.connection.close()
