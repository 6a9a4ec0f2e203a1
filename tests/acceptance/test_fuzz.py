"""Whatever is sent: no 5xx, no trace or path, no hang, no lost log entry, and the service goes on.

Each request is made from the seed and its number alone, so that a failure can be made again.
"""

import asyncio
import json
import secrets
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.decide_platform import DecidePlatform
from tests.fuzz_bodies import Body, body_bytes, drawn_targets, vector_targets
from tests.fuzz_wire import Wire, fields_for, spoiled_wire
from tests.raw_http import Connection, RawReply, connected, request_bytes, require_rules
from tests.recording_provider import Given, ModelCall, answered

Json = Any

AT_ONCE = 12
LOGGED_WITHIN_S = 30
WIRE_SHARE = 0.2
SHARES = {"/v1/session": 20, "/v1/context": 10, "/v1/decide": 45, "/v1/report": 10, "/v1/telemetry": 15}
SEED = 20261


class Row(NamedTuple):
    """One answer, as it was told or logged."""

    client_id: str
    epoch: int
    entity: str
    source: str
    code: str | None
    action: str | None
    decision_id: str | None


class Fuzz:
    """One run against the platform."""

    def __init__(self, platform: DecidePlatform, seed: int) -> None:
        self._port = platform.port
        self._seed = seed
        tag = f"fuzz{secrets.token_hex(4)}"
        self.targets = [*vector_targets(tag), *drawn_targets(tag, 24)]
        self._by_path: dict[str, list[Body]] = {}
        self.told: Counter[Row] = Counter()
        self.statuses: Counter[int | None] = Counter()
        self.unheard: set[str] = set()  # clients of requests that ended before their reply
        self.failures: list[str] = []

    async def prepare(self) -> None:
        """Open every session, and give those that get decisions reports of them to spoil."""
        async with connected(self._port) as connection:
            for target in self.targets:
                opened = await self._whole(connection, target.opening)
                assert opened.status == 200, opened
                for body in [body for body in target.bodies if body.path == "/v1/decide"]:
                    reply = await self._whole(connection, body)
                    assert reply.status == 200, reply
                    target.bodies.extend(reports(body, reply))
        bodies = [body for target in self.targets for body in (target.opening, *target.bodies)]
        self._by_path = {path: [body for body in bodies if body.path == path] for path in SHARES}

    async def _whole(self, connection: Connection, body: Body) -> RawReply:
        """Send a body as it is."""
        data = json.dumps(body.value).encode()
        await connection.send(request_bytes("POST", body.path, fields_for(self._port), data))
        reply = await connection.reply()
        assert reply is not None
        self._take(reply, "POST", data)
        return reply

    async def run(self, count: int) -> None:
        """Send that many requests, some at a time."""
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work(numbers))

    async def _work(self, numbers: Any) -> None:
        while True:
            async with connected(self._port) as connection:
                for number in numbers:
                    if not await self._one(number, connection):
                        break
                else:
                    return

    async def _one(self, number: int, connection: Connection) -> bool:
        """Send one request; whether the connection can take another."""
        chance = Random(f"{self._seed}:{number}")
        body = self._body(chance)
        data = body_bytes(chance, body)
        if chance.random() < WIRE_SHARE:
            await self._spoil(number, spoiled_wire(chance, body.path, data, self._port), data)
            return True
        return await self._send(
            number, connection, body.path, data, chance.choice([None] * 8 + ["50", "400"])
        )

    def _body(self, chance: Random) -> Body:
        (path,) = chance.choices(list(SHARES), list(SHARES.values()))
        body = chance.choice(self._by_path[path])
        if path != "/v1/session":
            return body
        # Under another name: a session whose manifest is spoiled has no use for its requests.
        client_id = body.value["client_id"] + chance.choice(["-x", "-y", "-z"])
        return Body(path, {**body.value, "client_id": client_id})

    async def _send(
        self, number: int, connection: Connection, path: str, data: bytes, timeout_ms: str | None = None
    ) -> bool:
        fields = fields_for(self._port) + ([] if timeout_ms is None else [("A2G-Timeout-Ms", timeout_ms)])
        try:
            await connection.send(request_bytes("POST", path, fields, data))
            reply = await connection.reply()
            if reply is None:
                self._fail(number, data, "no reply")
                return False
            self._take(reply, "POST", data)
        except (TimeoutError, ValueError, AssertionError, KeyError) as error:
            self._fail(number, data, repr(error))
            return False
        return not reply.closes

    async def _spoil(self, number: int, wire: Wire, body: bytes) -> None:
        """Send spoiled bytes on a connection of their own."""
        try:
            async with connected(self._port) as connection:
                await connection.send(wire.data)
                if not wire.whole and not connection.writer.is_closing():
                    connection.writer.write_eof()
                replies = 0
                while replies < wire.requests:
                    reply = await connection.reply(wire.method)
                    if reply is None:
                        break
                    if reply.status >= 200:
                        replies += 1
                        self._take(reply, wire.method, body)
                        if reply.closes:
                            break
            if replies < wire.requests:
                self.unheard.add(client_of(body))
            if wire.whole and replies == 0:
                self._fail(number, wire.data, "no reply")
        except (TimeoutError, ValueError, AssertionError, KeyError, OSError) as error:
            self._fail(number, wire.data, repr(error))

    def _take(self, reply: RawReply, method: str, body: bytes) -> None:
        """Judge a reply, and keep what it told."""
        self.statuses[reply.status] += 1
        require_rules(reply, method, body)
        assert 200 <= reply.status < 500, reply
        if reply.status == 200 and b'"decisions"' in reply.body:
            client_id = client_of(body)
            for decision in reply.json["decisions"]:
                told = [decision.get(key) for key in ("source", "code", "action", "decision_id")]
                self.told[Row(client_id, reply.json["epoch"], decision["id"], *told)] += 1

    def _fail(self, number: int, data: bytes, why: str) -> None:
        self.failures.append(f"request {number} of seed {self._seed}: {why[:400]}; sent {data[:600]!r}")


class Moody:
    """A provider on a bad day."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def __call__(self, call: ModelCall) -> Given:
        match self._chance.randrange(20):
            case 0:
                return Given({"detail": "overloaded"}, self._chance.choice([400, 401, 429, 500, 529]))
            case 1:
                return Given(b'{"answers": ')
            case 2:
                refused = self._chance.choice([None, {"type": "refusal"}, {"choice": "dance"}])
                return Given(answered(call, instead=dict.fromkeys(call.entities[:2], refused)))
            case 3 | 4:
                return Given(answered(call), delay_s=self._chance.choice([0.1, 0.4]))
        return Given(answered(call))


def client_of(body: bytes) -> str:
    """The client id in a body, "" where there is none to read."""
    try:
        return str(json.loads(body)["client_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def reports(asked: Body, reply: RawReply) -> list[Body]:
    """A report of every decision in a reply."""
    return [
        Body(
            "/v1/report",
            {
                "client_id": asked.value["client_id"],
                "entity_id": decision["id"],
                "decision_id": decision["decision_id"],
                "action": decision["action"],
                "status": "executed",
                "outcome": {"seconds": 1.5, "won": True},
            },
        )
        for decision in reply.json["decisions"]
        if decision["source"] == "AI"
    ]


async def logged(platform: DecidePlatform, clients: set[str], since: datetime) -> Counter[Row]:
    """What the log holds of these clients since then."""
    connection = await asyncpg.connect(platform.postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT client_id, epoch, entity_id, source, code, action, decision_id FROM decisions"
            " WHERE client_id = ANY($1) AND at >= $2",
            list(clients),
            since,
        )
    finally:
        await connection.close()
    return Counter(Row(*row) for row in rows)


async def require_log(platform: DecidePlatform, fuzz: Fuzz, since: datetime) -> None:
    """Everything told is in the log exactly once.

    What is there beyond it came too late for its gateway, or the game was gone before its reply.
    """
    told = fuzz.told
    clients = {row.client_id for row in told}
    rows: Counter[Row] = Counter()
    try:
        async with asyncio.timeout(LOGGED_WITHIN_S):
            while told - rows:
                rows = await logged(platform, clients, since)
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(
            f"{(told - rows).total()} of {told.total()} answers are not logged: {list(told - rows)[:3]}"
        )
    given_up = {(row.client_id, row.epoch, row.entity) for row in told if row.code == "unavailable"}
    for row in rows - told:
        late = row.source == "AI" and (row.client_id, row.epoch, row.entity) in given_up
        assert late or row.client_id in fuzz.unheard, row


async def fuzzed(platform: DecidePlatform, seed: int, count: int) -> Fuzz:
    """One run of `count` requests, and all that must hold after it."""
    fuzz = Fuzz(platform, seed)
    pids, log_chars, since = platform.pids(), len(platform.up.stderr()), datetime.now(UTC)
    await fuzz.prepare()
    with platform.recorder.ordered("", Moody(seed)):
        await fuzz.run(count)
    assert not fuzz.failures, "\n".join([f"{len(fuzz.failures)} failures", *fuzz.failures[:10]])
    await require_log(platform, fuzz, since)
    assert platform.pids() == pids
    await fuzz.prepare()  # it serves all of them as before
    for line in platform.up.stderr()[log_chars:].splitlines():
        assert json.loads(line)["level"] not in ("error", "critical"), line
    return fuzz


def require_breadth(fuzz: Fuzz, count: int) -> None:
    """The run has reached behind the checks as well as all of them."""
    assert fuzz.statuses.total() >= count * 0.9
    assert fuzz.statuses.keys() >= {200, 400, 403, 404, 405, 409, 413, 415}, fuzz.statuses
    assert fuzz.statuses[200] > count * 0.3, fuzz.statuses
    assert fuzz.statuses[400] > count * 0.3, fuzz.statuses
    assert {row.source for row in fuzz.told} == {"AI", "FALLBACK"}


async def test_hostile_requests(decide_platform: DecidePlatform) -> None:
    require_breadth(await fuzzed(decide_platform, SEED, 2_000), 2_000)


@pytest.mark.slow
async def test_very_many_hostile_requests(decide_platform: DecidePlatform) -> None:
    require_breadth(await fuzzed(decide_platform, SEED + 1, 20_000), 20_000)
