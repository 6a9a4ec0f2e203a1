"""Redis frozen, dead or refusing: known sessions get fallbacks at once, the rest is told to try again."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from redis import exceptions

from loadtests.lango import report_body, telemetry_body
from tests.decision_ledger import require_complete_log
from tests.fault_platform import Platform, frozen
from tests.game_load import Client, Exchange, Game, Load, entity_codes, opened, playing, require_whole_replies
from tests.waiting import eventually

AWAY_S = 3.0
RECOVERY_S = 2.0  # after it is back: two turns of the reconnection's longest delay
TRIP_S = 1.0  # after this a silent server is not waited for
FROZEN_SLACK_S = 0.9  # below a second trip's time
SHORT_MS = 600
DEAD_PROMPT_S = 1.0  # a lost connection is known at once


@asynccontextmanager
async def load_and_probe(platform: Platform, name: str) -> AsyncIterator[tuple[Load, Game]]:
    """A steady load, and a game whose session its gateway knows and whose decision can be reported."""
    async with playing(platform.url, name) as load, opened(Game(platform.url, f"{name}-probe")) as (probe,):
        await probe.decide()
        yield load, probe


async def refusals(platform: Platform, probe: Game) -> list[Exchange]:
    """What everything but a decide request of a known session is answered, asked at once.

    The last two are of a session that nobody knows: whether it is there cannot be told.
    """
    chance = Random(1)
    client_id = probe.client_id
    [decision, *_] = probe.exchanges[0].decisions
    report = report_body(client_id, decision["id"], decision["decision_id"], decision["action"], chance)
    unknown = Game(platform.url, f"{client_id}-unknown")
    asked = [
        ("/v1/session", probe.session),
        ("/v1/context", {"client_id": client_id, "profiles": {"calm": {"text": "Calm."}}}),
        ("/v1/telemetry", json.loads(telemetry_body(client_id, "bat", 3, chance))),
        ("/v1/report", json.loads(report)),
        ("/v1/context", {"client_id": unknown.client_id, "profiles": {}}),
    ]
    clients = [Client(platform.url) for _ in asked]
    try:
        return list(
            await asyncio.gather(
                *(client.post(path, value) for client, (path, value) in zip(clients, asked, strict=True)),
                unknown.decide(),
            )
        )
    finally:
        for client in (*clients, unknown.client):
            await client.close()


def require_refused(replies: list[Exchange], within_s: float) -> None:
    """All were told to try again: a 401 or 409 would make every game open its session anew."""
    for one in replies:
        assert (one.status, one.took_s < within_s) == (503, True), one
        assert list(json.loads(one.body)) == ["error"]
        assert int(one.headers["retry-after"]) >= 1


def require_prompt_fallbacks(exchanges: list[Exchange], within_s: float) -> None:
    """Requests made while it was away were given up at once."""
    assert len(exchanges) > 5
    for one in exchanges:
        asked = entity_codes([one])[:-1]  # the last may still be answered without a question
        assert set(asked) == {"unavailable"}, one
        assert one.took_s < within_s, one


def made_within(load: Load, start_s: float, end_s: float) -> list[Exchange]:
    return [one for one in load.exchanges if start_s <= one.started_s < end_s]


async def recovered(load: Load, back_s: float) -> list[Exchange]:
    """The requests made after the time that recovery may take: two of every game."""
    now = asyncio.get_running_loop().time

    async def enough() -> bool:
        return len(made_within(load, back_s + RECOVERY_S, now())) >= 2 * len(load.games)

    await eventually(enough)
    return made_within(load, back_s + RECOVERY_S, now())


async def in_flight(platform: Platform, game: Game) -> "asyncio.Task[Exchange]":
    """A request of this game, with little time, that a provider is being asked for."""
    await platform.provider(latency_ms=2 * SHORT_MS)
    asked = int((await platform.provider_stats())["in_flight"])
    task = asyncio.create_task(game.decide(SHORT_MS))

    async def asking() -> bool:
        return int((await platform.provider_stats())["in_flight"]) > asked

    await eventually(asking)
    await platform.provider(latency_ms=0)
    return task


async def test_frozen_for_three_seconds(platform: Platform) -> None:
    now = asyncio.get_running_loop().time
    other, admitted = (
        Game(platform.url, "redis-frozen-other"),
        Game(platform.url, "redis-frozen-admitted", own=False),
    )
    async with load_and_probe(platform, "redis-frozen") as (load, probe), opened(other, admitted):
        await admitted.decide()
        pids = platform.pids()
        hurried = await in_flight(platform, other)
        with frozen(platform.pid("valkey")):
            away_s = now()
            refused = await refusals(platform, probe)
            hasty, given_up = await asyncio.gather(probe.decide(SHORT_MS), admitted.decide())
            await asyncio.sleep(away_s + AWAY_S - now())
            back_s = now()
        after = await recovered(load, back_s)
    require_whole_replies([await hurried, hasty], SHORT_MS / 1000 + FROZEN_SLACK_S)
    require_refused(refused, TRIP_S + FROZEN_SLACK_S)
    # Its admission stood in the connection when Redis went on, and right behind it that it was given up.
    assert entity_codes([given_up]) == ["unavailable"] * 3
    assert await require_complete_log(platform.postgres_url, admitted.exchanges) == []
    require_prompt_fallbacks(made_within(load, away_s + 0.05, back_s - TRIP_S), TRIP_S + FROZEN_SLACK_S)
    assert set().union(*(one.sources for one in after)) == {"AI"}
    require_whole_replies(load.exchanges)
    assert platform.pids() == pids
    await require_complete_log(platform.postgres_url, [*load.exchanges, *probe.exchanges, *other.exchanges])


async def test_dead_for_three_seconds(platform: Platform) -> None:
    now = asyncio.get_running_loop().time
    async with load_and_probe(platform, "redis-dead") as (load, probe):
        pids = platform.pids("gateway", "worker", "scheduler")
        with frozen(platform.up.process.pid, below=False):  # nobody starts it again meanwhile
            os.kill(platform.pid("valkey"), signal.SIGKILL)
            away_s = now()
            refused = await refusals(platform, probe)
            await asyncio.sleep(away_s + AWAY_S - now())
        gone_s = now()
        await eventually(lambda: answers(platform))
        back_s = now()
        after = await recovered(load, back_s)
    require_refused(refused, DEAD_PROMPT_S)
    require_prompt_fallbacks(made_within(load, away_s + 0.1, gone_s - 0.1), DEAD_PROMPT_S)
    assert set().union(*(one.sources for one in after)) == {"AI"}
    require_whole_replies(load.exchanges)
    assert platform.pids("gateway", "worker", "scheduler") == pids
    await require_complete_log(platform.postgres_url, [*load.exchanges, *probe.exchanges])


async def test_a_redis_that_takes_no_writes_is_as_good_as_away(platform: Platform) -> None:
    now = asyncio.get_running_loop().time
    async with load_and_probe(platform, "redis-full") as (load, probe), platform.redis() as redis:
        await redis.config_set("maxmemory", 1)
        away_s = now()
        try:
            refused = await refusals(platform, probe)
            await load.answered(36)
            back_s = now()
        finally:
            await redis.config_set("maxmemory", 0)
        after = await recovered(load, back_s)
    # It still reads, so who is unknown is told so; and it lets a script go on that has begun to write: a
    # report's, which clears away first, is taken.
    *known, unknown_context, unknown_decide = refused
    require_refused([one for one in known if one.path != "/v1/report"], DEAD_PROMPT_S)
    assert (unknown_context.status, unknown_decide.status) == (409, 409)
    uncached = [one for one in made_within(load, away_s + 0.1, back_s - 0.1) if one.kind == "bat"]
    require_prompt_fallbacks(uncached, DEAD_PROMPT_S)
    assert set().union(*(one.sources for one in after)) == {"AI"}
    require_whole_replies(load.exchanges)
    await require_complete_log(platform.postgres_url, [*load.exchanges, *probe.exchanges])


async def answers(platform: Platform) -> bool:
    async with platform.redis() as redis:
        try:
            return bool(await redis.ping())
        except exceptions.ConnectionError:
            return False
