"""A platform that nobody asks: its processes rest, and what it keeps in Redis will go by itself."""

import asyncio
import json
from random import Random

from loadtests.lango import report_body, telemetry_body
from loadtests.load import cpu_seconds
from tests.fault_platform import Platform
from tests.game_load import Game, opened, playing

WATCH_S = 5.0
BUSY_SHARE = (
    0.05  # of a core and process: a loop that spins takes all of it, resting ones about a tenth of this
)

# Celery's own keys, in a database of their own: how its queue is bound is a setting that must not expire.
BROKER_KEYS_KEPT = {b"muster:_kombu.binding.muster", b"muster:_kombu.binding_permanent.muster"}


async def test_at_rest_no_process_is_busy(platform: Platform) -> None:
    async with playing(platform.url, "restless") as load:
        await load.answered(24)  # what a load leaves behind must come to rest, too
    pids = {**platform.pids(), "up": platform.up.process.pid}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    await asyncio.sleep(WATCH_S)
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    assert {name: seconds for name, seconds in used.items() if seconds > BUSY_SHARE * WATCH_S} == {}


async def test_every_key_expires(platform: Platform) -> None:
    game, chance = Game(platform.url, "expiring"), Random(1)
    async with opened(game, Game(platform.url, "expiring-bees", "bee")) as games:
        await game.client.post("/v1/telemetry", json.loads(telemetry_body("expiring", "bat", 3, chance)))
        context = {"client_id": "expiring", "profiles": {"calm": {"text": "Calm."}}}
        assert (await game.client.post("/v1/context", context)).status == 200
        [first, *_] = (await asyncio.gather(*(each.decide() for each in games)))[0].decisions
        report = report_body("expiring", first["id"], first["decision_id"], first["action"], chance)
        assert (await game.client.post("/v1/report", json.loads(report))).status == 200
        async with platform.redis() as redis:
            ours = [(key, await redis.pttl(key)) async for key in redis.scan_iter(count=1000)]
    assert {b"session", b"snap", b"mem", b"last", b"used", b"log"} <= {key.split(b":")[-1] for key, _ in ours}
    assert [key for key, ttl_ms in ours if ttl_ms == -1] == []


async def test_the_broker_keeps_its_bindings_alone(platform: Platform) -> None:
    async with platform.redis(platform.up.stack().broker_url) as redis:
        kept = {key async for key in redis.scan_iter(count=1000) if await redis.pttl(key) == -1}
    assert kept <= BROKER_KEYS_KEPT
