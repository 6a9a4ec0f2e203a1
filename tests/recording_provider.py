"""A System One provider that tests direct: it keeps every request and answers as the test ordered.

It runs on a thread and a loop of its own, so that one server outlives the loops of many tests. What is
ordered is bound to a mark, a text that occurs in the requests it is meant for: tests do not get in each
other's way.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = Any


@dataclass(frozen=True, slots=True)
class Question:
    """One question as the provider read it."""

    id: str
    instructions: dict[str, Json]
    criteria: dict[str, str]

    @property
    def entity(self) -> str:
        return str(self.instructions["id"])

    @property
    def options(self) -> list[str]:
        return list(self.criteria)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to the provider; `text` is its body as it came."""

    path: str
    authorization: str | None
    text: str
    state: dict[str, Json]
    questions: list[Question]

    def question(self, entity: str) -> Question:
        """The question about that entity."""
        (found,) = [question for question in self.questions if question.entity == entity]
        return found

    @property
    def entities(self) -> list[str]:
        return [question.entity for question in self.questions]

    @property
    def state_text(self) -> str:
        """The shared state as it came, byte for byte."""
        begin = self.text.index('"state":') + len('"state":')
        _, end = json.JSONDecoder().raw_decode(self.text, begin)
        return self.text[begin:end]


@dataclass(frozen=True, slots=True)
class Given:
    """What the provider answers: after `delay_s` and the end of `hold`, `status` with `body`."""

    body: Json = None  # bytes, or what becomes JSON
    status: int = 200
    delay_s: float = 0.0
    hold: "Future[None] | None" = None
    headers: Mapping[str, str] = field(default_factory=dict)


def answered(
    call: ModelCall, choices: Mapping[str, str] | None = None, instead: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """A reply that chooses `choices` by entity, elsewhere the first option, with 3/4 of the probability.

    `instead` replaces answers by entity; None leaves one out.
    """
    answers = {question.id: _answer(question, choices or {}) for question in call.questions}
    for question in call.questions:
        if instead is not None and question.entity in instead:
            answers[question.id] = instead[question.entity]
    answers = {question: answer for question, answer in answers.items() if answer is not None}
    usage = {"input_tokens": len(call.text) // 4, "output_tokens": 0}
    return {"model": "recorder-1", "answers": answers, "usage": usage}


def _answer(question: Question, choices: Mapping[str, str]) -> Json:
    options = question.options
    chosen = choices.get(question.entity, options[0])
    rest = 0.25 / (len(options) - 1)
    probabilities = {option: 0.75 if option == chosen else rest for option in options}
    return {"type": "choice", "choice": chosen, "probabilities": probabilities, "confidence": 0.5}


Order = Callable[[ModelCall], Given]


class RecordingProvider:
    """The server. `calls` are all requests so far, in the order in which they came."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self._orders: dict[str, Order] = {}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name="recording provider")
        self._thread.start()
        self.url = self._started.result(10)

    def about(self, mark: str) -> list[ModelCall]:
        """The requests in which this text occurs."""
        return [call for call in self.calls if mark in call.text]

    @contextmanager
    def ordered(self, mark: str, order: Order) -> Iterator[None]:
        """Answer requests in which `mark` occurs by `order` meanwhile."""
        self._orders[mark] = order
        try:
            yield
        finally:
            del self._orders[mark]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_post("/{name}/v1/systemone", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._started.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        read = json.loads(text)
        call = ModelCall(
            request.match_info["name"],
            request.headers.get("Authorization"),
            text,
            read["state"],
            [
                Question(question_id, question["instructions"], question["criteria"])
                for question_id, question in read["questions"].items()
            ],
        )
        self.calls.append(call)
        orders = [order for mark, order in list(self._orders.items()) if mark in text]
        given = orders[0](call) if orders else Given(answered(call))
        if given.delay_s:
            await asyncio.sleep(given.delay_s)
        if given.hold is not None:
            await asyncio.wrap_future(given.hold)
        body = given.body if isinstance(given.body, bytes) else json.dumps(given.body).encode()
        return web.Response(
            status=given.status, body=body, headers=given.headers, content_type="application/json"
        )
