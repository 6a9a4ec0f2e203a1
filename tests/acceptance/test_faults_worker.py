"""A worker that dies or freezes with a batch in its hands: no game waits in vain, none gets two answers."""

import asyncio
import os
import signal
from contextlib import ExitStack

from redis.asyncio import Redis

from gateway.sessions import local_session
from shared.store.keys import SessionKeys, game_tag
from tests.decision_ledger import require_complete_log
from tests.fault_platform import SLOTS, Platform, frozen
from tests.game_load import Exchange, Game, entity_codes, opened, playing, require_whole_replies
from tests.waiting import eventually

LEASE_S = 1.0  # workers/claims.py: after this a silent worker's batch is anybody's
WAIT_MS = 700  # longer than a worker sleeps by mistake, shorter than the deadline
SLOW_MS = 300  # so that a worker has a batch in its hands whenever a signal comes


def taken_over(exchanges: list[Exchange]) -> list[Exchange]:
    """Requests that were answered only after a lease had ended."""
    return [one for one in exchanges if one.took_s > LEASE_S * 0.8]


def asked_codes(exchanges: list[Exchange]) -> list[str | None]:
    """The fallback codes of the entities that were left to a worker, None for a decision."""
    return [code for one in exchanges for code in entity_codes([one])[:-1]]


async def test_a_worker_killed_mid_batch_costs_no_answer(platform: Platform) -> None:
    await platform.provider(latency_ms=SLOW_MS)
    async with playing(platform.url, "killed", games=16) as load:
        before = platform.pid("worker-1")
        await platform.busy_workers()
        os.kill(before, signal.SIGKILL)

        async def replaced() -> bool:
            return platform.pid("worker-1") != before

        await eventually(replaced)
        await load.answered(64)
    require_whole_replies(load.exchanges)
    waited = asked_codes(taken_over(load.exchanges))
    assert waited, "the worker had nothing in its hands"
    assert waited.count(None) > 0.5 * len(waited)
    assert set(entity_codes(load.exchanges)) <= {None, "busy", "unavailable"}
    # A settlement writes answer and row at once, or neither: whoever answers an item logs it.
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


async def test_a_worker_frozen_mid_batch_changes_nothing_when_it_wakes(platform: Platform) -> None:
    await platform.provider(latency_ms=SLOW_MS)
    games = [Game(platform.url, f"probe-{n}", "bee", game="Probe") for n in range(10)]
    async with (
        playing(platform.url, "frozen", games=16) as load,
        opened(*games) as probes,
        platform.redis() as redis,
    ):
        with ExitStack() as other, ExitStack() as holder:
            other.enter_context(frozen(platform.pid("worker-2")))
            asking = asyncio.gather(*(probe.decide() for probe in probes))
            await eventually(lambda: in_flight(redis))
            holder.enter_context(frozen(platform.pid("worker-1")))
            other.close()
            asked = await asking  # answered by the other worker once the lease has ended
            await further_calls(platform, "worker-2")  # what it remembers of them is written
            remembered = [SessionKeys(local_session(probe.client_id)).last for probe in probes]
            remembered += [key.decode() async for key in redis.scan_iter(f"{{g:{game_tag('Probe')}}}:c:*")]
            assert await redis.delete(*remembered) == len(remembered)
        await further_calls(platform, "worker-1")  # what it had in its hands is through
        assert await redis.exists(*remembered) == 0
    assert taken_over(asked), "the worker had nothing in its hands"
    require_whole_replies([*load.exchanges, *asked])
    assert await require_complete_log(platform.postgres_url, [*load.exchanges, *asked]) == []


async def test_without_a_worker_requests_are_busy_and_a_waking_one_pays_for_none(platform: Platform) -> None:
    async with opened(*(Game(platform.url, f"workless-{n}") for n in range(6))) as games:
        before = (await platform.provider_stats())["requests"]
        with frozen(platform.pid("worker-1")), frozen(platform.pid("worker-2")):
            waited = await asyncio.gather(*(game.decide(WAIT_MS) for game in games))
        asked = [await game.decide() for game in games]
        calls = (await platform.provider_stats())["requests"] - before
    require_whole_replies(waited, WAIT_MS / 1000 + 1)
    assert asked_codes(waited) == ["busy"] * 12
    assert asked_codes(asked) == [None] * 12
    assert calls <= len(asked)
    assert await require_complete_log(platform.postgres_url, [*waited, *asked]) == []


async def in_flight(redis: "Redis[bytes]") -> bool:
    """Whether a worker is asking for a probe."""
    return bool([key async for key in redis.scan_iter(f"{{g:{game_tag('Probe')}}}:f:*")])


async def further_calls(platform: Platform, worker: str) -> None:
    """Wait until the worker has ended more provider calls than it can have in its hands."""
    name = "muster_provider_calls_total"
    enough = await platform.metric(worker, name) + SLOTS + 1

    async def ended() -> bool:
        return await platform.metric(worker, name) >= enough

    await eventually(ended)
