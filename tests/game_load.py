"""Games as load: sessions that decide steadily over kept-alive connections and keep what they were told."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

from loadtests.lango import decide_body, session_body
from tests.waiting import eventually

DEADLINE_S = 3.5  # decide_timeout_ms of the default configuration
SLACK_S = 1.5  # of a noisy machine, between the gateway's deadline and the game
PATIENCE_S = 20.0  # no reply at all by then


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it. Times are the event loop's."""

    path: str
    sent: dict[str, Any]
    started_s: float
    took_s: float
    reused: bool  # the connection had served a request before
    status: int  # 0: no reply
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    failure: str = ""  # why there was no reply

    @property
    def ended_s(self) -> float:
        return self.started_s + self.took_s

    @property
    def kind(self) -> str:
        """The type of the entities."""
        return str(self.sent["entities"][0]["type"])

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return list(json.loads(self.body)["decisions"])

    @property
    def sources(self) -> set[str]:
        return {decision["source"] for decision in self.decisions}

    @property
    def codes(self) -> set[str | None]:
        return {decision.get("code") for decision in self.decisions}


class Client:
    """One kept-alive connection: opened when needed, closed when told so; nothing is sent twice."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._served = False

    async def post(self, path: str, value: dict[str, Any], timeout_ms: int | None = None) -> Exchange:
        """Send one request and wait for its reply; a failure is a value."""
        loop = asyncio.get_running_loop()
        started_s, reused = loop.time(), self._served
        status, headers, body, failure = 0, {}, b"", ""
        try:
            async with asyncio.timeout(PATIENCE_S):
                status, headers, body = await self._exchange(path, json.dumps(value).encode(), timeout_ms)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"
            await self.close()
        else:
            self._served = True
            if headers.get("connection", "").lower() == "close":
                await self.close()
        return Exchange(
            path, value, started_s, loop.time() - started_s, reused, status, headers, body, failure
        )

    async def close(self) -> None:
        streams, self._streams, self._served = self._streams, None, False
        if streams is not None:
            streams[1].close()
            with suppress(OSError):
                await streams[1].wait_closed()

    async def _exchange(
        self, path: str, body: bytes, timeout_ms: int | None
    ) -> tuple[int, dict[str, str], bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
        )
        if timeout_ms is not None:
            head += f"A2G-Timeout-Ms: {timeout_ms}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


class Game:
    """One session: its connection, its requests in order, what came of them.

    A request asks for `entities` creatures; with `own`, the last of them has one legal action, which the
    gateway answers by itself.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        kind: str = "bat",
        entities: int = 3,
        game: str = "Lango",
        *,
        own: bool = True,
    ) -> None:
        self.client_id = client_id
        self.game = game
        self.client = Client(url)
        self.exchanges: list[Exchange] = []
        self._kind = kind
        self._entities = entities
        self._own = own
        self._chance = Random(client_id)
        self._epoch = 0

    @property
    def session(self) -> dict[str, Any]:
        """The body that opens it."""
        return {**json.loads(session_body(self.client_id)), "game": self.game}

    async def decide(self, timeout_ms: int | None = None) -> Exchange:
        """Ask once; every request has an epoch of its own, so that its answers are told apart in the log."""
        self._epoch += 1
        request = json.loads(decide_body(self.client_id, self._kind, self._entities, self._chance))
        request["epoch"] = self._epoch
        if self._own:
            request["entities"][-1]["legal_actions"] = ["idle"]
        exchange = await self.client.post("/v1/decide", request, timeout_ms)
        self.exchanges.append(exchange)
        return exchange

    async def play(self, per_s: float, stop: asyncio.Event) -> None:
        """Ask `per_s` times a second, or as often as the replies allow, until told to stop."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._chance.random() / per_s
        while not stop.is_set():
            try:
                async with asyncio.timeout_at(due_s):
                    await stop.wait()
            except TimeoutError:
                await self.decide()
            due_s = max(due_s + 1 / per_s, loop.time())


class Load:
    """Games that play at the same time."""

    def __init__(self, games: Sequence[Game]) -> None:
        self.games = games

    @property
    def exchanges(self) -> list[Exchange]:
        """Everything so far, in the order of the replies."""
        return sorted((one for game in self.games for one in game.exchanges), key=lambda one: one.ended_s)

    async def answered(self, count: int, within_s: float = 20) -> None:
        """Wait for that many more replies."""
        goal = len(self.exchanges) + count

        async def enough() -> bool:
            return len(self.exchanges) >= goal

        await eventually(enough, within_s)


@asynccontextmanager
async def opened(*games: Game) -> AsyncIterator[Sequence[Game]]:
    """These games with their sessions open; their connections are closed afterwards."""
    try:
        for reply in await asyncio.gather(*(game.client.post("/v1/session", game.session) for game in games)):
            assert reply.status == 200, reply
        yield games
    finally:
        for game in games:
            await game.client.close()


@asynccontextmanager
async def playing(url: str, name: str, games: int = 12, per_s: float = 3.0) -> AsyncIterator[Load]:
    """Games that decide steadily meanwhile: every fourth has bees, whose decisions are cached.

    `name` makes their client ids. Requests in flight at the end are waited for.
    """
    kinds = {f"{name}-{n}": "bat" if n % 4 else "bee" for n in range(games)}
    async with opened(*(Game(url, client_id, kind) for client_id, kind in kinds.items())) as players:
        load, stop = Load(players), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for game in players:
                group.create_task(game.play(per_s, stop))
            try:
                await load.answered(games)
                yield load
            finally:
                stop.set()


def require_whole_replies(exchanges: Iterable[Exchange], within_s: float = DEADLINE_S + SLACK_S) -> None:
    """Every request was answered 200 in time, with every entity exactly once."""
    exchanges = list(exchanges)
    assert exchanges
    for one in exchanges:
        assert one.status == 200, (one.status, one.failure, one.took_s, one.body, one)
        assert [d["id"] for d in one.decisions] == [entity["id"] for entity in one.sent["entities"]]
    assert max(one.took_s for one in exchanges) <= within_s


def entity_codes(exchanges: Iterable[Exchange]) -> list[str | None]:
    """The fallback code of every entity of these requests; None for a decision."""
    return [decision.get("code") for one in exchanges for decision in one.decisions]
