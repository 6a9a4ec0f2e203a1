"""What holds across gateways, workers and many sessions: one truth, kept when processes die, asked once."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.decide_platform import DecidePlatform, Session, game_of
from tests.raw_http import Connection, connected, request_bytes
from tests.recording_provider import Given, ModelCall, answered
from tests.waiting import eventually

Json = Any

ACTIONS = {"idle": "Stay", "chase": "Run after the player", "flee": "Run away"}
BEE = {"fields": {"hp": "number"}, "actions": ACTIONS}
GUARD = {**BEE, "cache": {"key": ["hp"], "ttl_ms": 60_000}}
GATEWAYS = ("gateway-1", "gateway-2")
CROWD = 200
PROVIDER_S = 0.3
MOST_QUESTIONS = 3


def asks(entity: str, kind: str = "bee", hp: float = 1, **keys: Json) -> dict[str, Json]:
    return {"id": entity, "type": kind, "observation": {"hp": hp}, "legal_actions": list(ACTIONS), **keys}


class Line:
    """A kept connection to one gateway."""

    def __init__(self, platform: DecidePlatform, connection: Connection) -> None:
        self._headers = [("Host", f"127.0.0.1:{platform.port}"), ("Content-Type", "application/json")]
        self._connection = connection

    async def call(self, method: str, path: str, value: Json = None) -> tuple[int, Json]:
        body = b"" if value is None else json.dumps(value).encode()
        await self._connection.send(request_bytes(method, path, self._headers, body))
        reply = await self._connection.reply(method)
        assert reply is not None
        return reply.status, reply.json


async def health_calls(platform: DecidePlatform) -> list[float]:
    """How often each gateway has told its health."""
    return [await platform.metric(name, "muster_requests_total", path="/health") for name in GATEWAYS]


@asynccontextmanager
async def both_gateways(platform: DecidePlatform) -> AsyncIterator[list[Line]]:
    """One kept connection to each gateway."""
    async with AsyncExitStack() as stack:
        lines: dict[int, Line] = {}
        for _ in range(200):
            line = Line(platform, await stack.enter_async_context(connected(platform.port)))
            before = await health_calls(platform)
            assert (await line.call("GET", "/health"))[0] == 200
            after = await health_calls(platform)
            (taken,) = [place for place in range(2) if after[place] > before[place]]
            lines.setdefault(taken, line)
            if len(lines) == 2:
                break
        yield [lines[0], lines[1]]


async def test_a_context_update_counts_at_once_at_every_gateway(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"bee": BEE}, scopes={"cave": {"text": "Text 0."}})
    session = await decide_platform.opened(manifest)
    async with both_gateways(decide_platform) as lines:
        for number in range(1, 13):
            here, there = lines[number % 2], lines[1 - number % 2]
            update = {"client_id": session.client_id, "scopes": {"cave": {"text": f"Text {number}."}}}
            assert await here.call("POST", "/v1/context", update) == (
                200,
                {"ok": True, "scopes": 1, "profiles": 0},
            )
            for line in (there, here):
                status, _ = await line.call("POST", "/v1/decide", session.request([asks("b1")], scope="cave"))
                assert status == 200
                assert session.calls()[-1].state["scopes"] == [{"scope": "cave", "text": f"Text {number}."}]
        removal = {"client_id": session.client_id, "scopes": {"cave": None}}
        assert (await lines[0].call("POST", "/v1/context", removal))[0] == 200
        for line in (lines[1], lines[0]):
            status, reply = await line.call("POST", "/v1/decide", session.request([asks("b1")], scope="cave"))
            assert status == 400
            assert "scope" in reply["error"]


async def test_a_reopened_session_counts_at_once_at_every_gateway(decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(game_of({"bee": BEE}))
    async with both_gateways(decide_platform) as lines:
        for number in range(6):
            here, there = lines[number % 2], lines[1 - number % 2]
            kind = f"kind{number}"
            manifest = game_of({kind: BEE})
            body = {"a2g": "0.1", "client_id": session.client_id, "game": "Wire", "manifest": manifest}
            assert (await here.call("POST", "/v1/session", body))[0] == 200
            status, reply = await there.call("POST", "/v1/decide", session.request([asks("b1", kind)]))
            assert status == 200, reply
            assert (await there.call("POST", "/v1/decide", session.request([asks("b1")])))[0] == 400
            row = {"id": "b1", "type": kind, "fields": {"hp": 1}}
            snapshot = {"client_id": session.client_id, "mode": "ai", "paused": False, "entities": [row]}
            assert (await there.call("POST", "/v1/telemetry", snapshot))[0] == 200


def asked(session: Session, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether the provider has had that many calls of the session's."""

    async def enough() -> bool:
        return len(session.calls()) >= count

    return enough


async def claimed(platform: DecidePlatform) -> float:
    """How many batches the workers have claimed so far."""
    workers = platform.pids("worker")
    return sum([await platform.metric(name, "muster_batch_entities_count") for name in workers])


async def lived(platform: DecidePlatform) -> Session:
    """A session with memory, a parent's decision, a snapshot, a cached answer and contexts of its own."""
    types = {"bee": BEE, "guard": GUARD, "player": {"fields": {"hp": "number"}, "actions": {}}}
    session = await platform.opened(game_of(types))
    await session.context(profiles={"old": {"text": "Old and slow."}})
    decisions = await session.decide(asks("b1"), asks("s1"), asks("g1", "guard"))
    await session.report(decisions["b1"], outcome={"n": 1})
    await session.telemetry(
        {"id": "b1", "type": "bee", "fields": {"hp": 1}},
        {"id": "p", "type": "player", "fields": {"hp": 0.4}},
    )
    return session


async def require_all_known(session: Session) -> None:
    """The session's next decisions see all that `lived` made."""
    decisions = await session.decide(asks("b1", parent="s1", profile="old"), asks("g2", "guard"))
    assert {decision["source"] for decision in decisions.values()} == {"AI"}
    assert decisions["g2"]["cached"] is True
    call = session.calls()[-1]
    seen = call.question("b1").instructions
    assert seen["memory"] == [{"action": "idle", "status": "executed", "outcome": {"n": 1}}]
    assert seen["parent"]["action"] == "idle"
    assert call.state["profiles"] == {"old": "Old and slow."}
    assert call.state["observed_entities"] == [{"id": "p", "type": "player", "fields": {"hp": 0.4}}]
    assert call.state["population"]["bee"] == {"alive": 1, "seen": 1, "gone": 0}


async def killed(platform: DecidePlatform, kind: str) -> None:
    """Kill every process of a kind and wait until all have been replaced and serve."""
    before = platform.pids(kind)
    assert len(before) == 2
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    async def replaced() -> bool:
        return not set(before.values()) & set(platform.pids(kind).values())

    await eventually(replaced)


async def test_sessions_outlive_their_gateways(decide_platform: DecidePlatform) -> None:
    session = await lived(decide_platform)
    await killed(decide_platform, "gateway")
    await require_all_known(session)


async def test_sessions_outlive_the_workers(decide_platform: DecidePlatform) -> None:
    session = await lived(decide_platform)
    await killed(decide_platform, "worker")
    await require_all_known(session)


FATES: dict[str, Callable[[ModelCall], Json]] = {
    "answered": answered,
    "refused": lambda call: answered(call, instead={"leader": {"type": "refusal"}}),
    "missing": lambda call: answered(call, instead={"leader": None}),
    "broken": lambda _: "no reply",
}


@pytest.mark.parametrize("fate", FATES)
async def test_who_waits_for_anothers_question_never_inherits_its_failure(
    fate: str, decide_platform: DecidePlatform
) -> None:
    manifest = game_of({"guard": GUARD})
    first, second = [await decide_platform.opened(manifest) for _ in range(2)]
    hold: Future[None] = Future()

    def order(call: ModelCall) -> Given:
        led = "leader" in call.entities
        return Given(FATES[fate](call), hold=hold) if led else Given(answered(call))

    with decide_platform.recorder.ordered(first.world, order):
        leading = asyncio.create_task(first.decide(asks("leader", "guard")))
        await eventually(asked(first, 1))
        claims = await claimed(decide_platform)
        following = asyncio.create_task(second.decide(asks("follower", "guard")))

        async def waits() -> bool:
            return await claimed(decide_platform) > claims

        await eventually(waits)
        hold.set_result(None)
        led, followed = (await leading)["leader"], (await following)["follower"]
    assert followed["source"] == "AI"
    if fate == "answered":
        assert followed["cached"] is True
        assert [call.entities for call in first.calls()] == [["leader"]]
    else:
        assert led["source"] == "FALLBACK"
        assert "cached" not in followed
        assert [call.entities for call in first.calls()] == [["leader"], ["follower"]]


async def test_a_leader_that_gives_up_leaves_its_answer_to_who_waits(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"guard": GUARD})
    first, second = [await decide_platform.opened(manifest) for _ in range(2)]
    hold: Future[None] = Future()
    with decide_platform.recorder.ordered(first.world, lambda call: Given(answered(call), hold=hold)):
        leading = asyncio.create_task(first.decide(asks("leader", "guard"), timeout_ms=400))
        await eventually(asked(first, 1))
        following = asyncio.create_task(second.decide(asks("follower", "guard")))
        assert (await leading)["leader"]["code"] == "unavailable"
        hold.set_result(None)
        assert (await following)["follower"]["source"] == "AI"
    assert sum(len(call.questions) for call in first.calls()) <= 2


async def test_a_crowd_in_one_situation_asks_about_once(decide_platform: DecidePlatform) -> None:
    manifest = game_of({"guard": GUARD})
    sessions = await asyncio.gather(*(decide_platform.opened(manifest) for _ in range(CROWD)))
    world = sessions[0].world
    with decide_platform.recorder.ordered(world, lambda call: Given(answered(call), delay_s=PROVIDER_S)):
        for round_number in range(4):
            asked_before = len(sessions[0].calls())
            replies = await asyncio.gather(
                *(session.decide(asks("g", "guard", hp=round_number)) for session in sessions)
            )
            decisions = [reply["g"] for reply in replies]
            assert {decision["source"] for decision in decisions} == {"AI"}
            assert len({decision["decision_id"] for decision in decisions}) == CROWD
            asked = sum(len(call.questions) for call in sessions[0].calls()[asked_before:])
            assert 1 <= asked <= MOST_QUESTIONS
            assert sum("cached" not in decision for decision in decisions) == asked
