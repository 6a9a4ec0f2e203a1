"""Processes replaced or ended while games play: what was accepted is answered, what was known stays known."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from random import Random

import asyncpg

from loadtests.lango import report_body, telemetry_body
from tests.decision_ledger import require_complete_log
from tests.fault_platform import Platform
from tests.game_load import Exchange, Game, opened, playing, require_whole_replies
from tests.stack import Ends, Up
from tests.waiting import eventually

SLOW_MS = 300  # so that requests are in flight whenever a process is told to end


async def replaced(platform: Platform, before: dict[str, int]) -> None:
    """Wait until other processes have taken the places of these."""

    async def other() -> bool:
        now = platform.pids(*before)
        return set(now) == set(before) and not set(now.values()) & set(before.values())

    await eventually(other, 60)


async def gone(pids: dict[str, int]) -> bool:
    """Whether these processes end within the time that draining may take."""
    return await asyncio.to_thread(Ends(list(pids.values())).all, 50)


async def test_replacing_the_gateways_one_by_one_fails_no_request(platform: Platform) -> None:
    await platform.provider(latency_ms=SLOW_MS)
    async with playing(platform.url, "rolling", games=16) as load:
        before = platform.pids("gateway")
        ends = asyncio.create_task(gone(before))
        platform.up.send(signal.SIGHUP)
        await replaced(platform, before)
        assert await ends
        await load.answered(32)
    require_whole_replies(load.exchanges)
    assert {one.headers.get("connection", "") for one in load.exchanges} >= {"", "close"}
    assert set().union(*(one.sources for one in load.exchanges)) == {"AI"}
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


async def test_ending_each_gateway_in_turn_fails_no_request(platform: Platform) -> None:
    await platform.provider(latency_ms=SLOW_MS)
    async with playing(platform.url, "in-turn", games=16) as load:
        for name in ("gateway-1", "gateway-2"):
            before = platform.pids(name)
            ends = asyncio.create_task(gone(before))
            os.kill(before[name], signal.SIGTERM)
            await replaced(platform, before)
            assert await ends
        await load.answered(32)
    require_whole_replies(load.exchanges)
    assert set().union(*(one.sources for one in load.exchanges)) == {"AI"}
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


async def test_ending_each_worker_in_turn_costs_no_decision(platform: Platform) -> None:
    await platform.provider(latency_ms=SLOW_MS)
    async with playing(platform.url, "workers-in-turn", games=16) as load:
        for name in ("worker-1", "worker-2"):
            before = platform.pids(name)
            await platform.busy_workers()
            os.kill(before[name], signal.SIGTERM)
            await replaced(platform, before)
        await load.answered(32)
    require_whole_replies(load.exchanges)
    assert set().union(*(one.sources for one in load.exchanges)) == {"AI"}
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


async def test_killed_gateways_and_workers_come_back_to_sessions_and_situations(platform: Platform) -> None:
    game, chance = Game(platform.url, "remembered"), Random(1)
    async with opened(game):
        await game.client.post("/v1/telemetry", json.loads(telemetry_body("remembered", "bat", 3, chance)))
        [first, *_] = (await game.decide()).decisions
        report = report_body("remembered", first["id"], first["decision_id"], first["action"], chance)
        assert (await game.client.post("/v1/report", json.loads(report))).status == 200
        before = platform.pids("gateway", "worker")
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        await replaced(platform, before)
        await game.client.close()
        after = await game.decide()
    require_whole_replies(game.exchanges)
    assert after.sources == {"AI"}
    await require_complete_log(platform.postgres_url, game.exchanges)
    state, seen = await model_input(platform, after, first["id"])
    assert state["population"]["bat"] == {"alive": 3, "seen": 3, "gone": 0}
    assert [memory["action"] for memory in seen["memory"]] == [first["action"]]


async def model_input(
    platform: Platform, exchange: Exchange, entity: str
) -> tuple[dict[str, dict[str, object]], dict[str, list[dict[str, object]]]]:
    """What the provider saw of a request, and of one of its entities, by the log."""
    connection = await asyncpg.connect(platform.postgres_url)
    try:
        row = await connection.fetchrow(
            "SELECT state, input FROM decisions WHERE client_id = $1 AND epoch = $2 AND entity_id = $3",
            exchange.sent["client_id"],
            exchange.sent["epoch"],
            entity,
        )
    finally:
        await connection.close()
    return json.loads(row["state"]), json.loads(row["input"])


async def test_ending_the_platform_answers_what_it_had_accepted(muster_up: Callable[..., Up]) -> None:
    up = muster_up("--gateways", "2").ready()
    platform = Platform(up)
    await platform.provider(latency_ms=SLOW_MS)
    async with playing(up.url, "ending", games=16) as load:
        ends = Ends(up.pids())
        up.send(signal.SIGTERM)
        code = await asyncio.to_thread(up.wait)
    assert code == 0
    assert ends.all(0.1)
    # Who came when nobody listened any more was refused; on a connection that had been served nothing fails.
    failed = [one for one in load.exchanges if one.status == 0]
    assert [one for one in failed if one.reused or "Refused" not in one.failure] == []
    answered = [one for one in load.exchanges if one.status]
    require_whole_replies(answered)
    assert set().union(*(one.sources for one in answered)) == {"AI"}
    again = muster_up(data_dir=up.data_dir).ready()
    assert await require_complete_log(Platform(again).postgres_url, answered) == []
