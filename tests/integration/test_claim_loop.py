"""The worker's claim loop on a real queue: it comes when there is work and a slot, and rests otherwise."""

import asyncio
from typing import Any, cast

import pytest

from shared.clock import SystemClock
from shared.config import parse_config
from shared.store.connection import RedisConnection
from shared.store.queue import Answer, Claim, DeadlineQueue
from tests.queue_items import item
from workers.claims import ClaimLoop
from workers.engine import Engine
from workers.slots import Slots

PROVIDER = {"kind": "systemone", "base_url": "http://127.0.0.1:1", "model": "m", "max_questions": 1}
CONFIG = parse_config(
    {
        "providers": {"one": PROVIDER, "two": PROVIDER},
        "routing": {"default": ["one"], "other": ["two"]},
        "concurrency": 1,
    }
)
CALL_S = 0.05


class SlowEngine:
    """Takes the slot that was taken for a batch, works for a while, settles and gives the slot back."""

    def __init__(self, queue: DeadlineQueue, slots: dict[str, Slots]) -> None:
        self._queue = queue
        self._slots = slots
        self.claimed: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, claim: Claim, *, holds_slot: bool) -> None:
        assert holds_slot
        await self.claimed.put(claim.items[0].item)
        await asyncio.sleep(CALL_S)
        answers = [Answer(one.item, one.gateway, b"reply") for one in claim.items]
        await self._queue.settle(claim.batch, claim.fence, answers, final=True)
        self._slots[CONFIG.routing[claim.route][0]].release()

    async def keep(self, lease_ms: int) -> None:
        """The batches here are shorter than a lease."""

    async def drain(self) -> None:
        """Nothing is left behind."""


class Loop:
    """A claim loop that runs, and what it claimed."""

    def __init__(self, connection: RedisConnection) -> None:
        freed = asyncio.Event()
        self.queue = DeadlineQueue(connection)
        slots = {name: Slots(CONFIG.concurrency, freed) for name in CONFIG.providers}
        self.engine = SlowEngine(self.queue, slots)
        self.claims = ClaimLoop(
            connection=connection,
            queue=self.queue,
            engine=cast("Engine", self.engine),
            slots=slots,
            least_ms=lambda _: 0,
            freed=freed,
            config=CONFIG,
            clock=SystemClock(),
            worker="w1",
        )
        self.task = asyncio.create_task(self.claims.run())

    async def admit(self, name: str, **changes: Any) -> None:
        now_ms = SystemClock().now_ms()
        one = item(name, deadline_ms=now_ms + 3_000, full=1, **changes)
        assert await self.queue.admit(now_ms, [one]) == [True]

    async def next(self, timeout_s: float) -> str:
        async with asyncio.timeout(timeout_s):
            return await self.engine.claimed.get()


@pytest.fixture
async def loop(store_connection: RedisConnection) -> Any:
    running = Loop(store_connection)
    yield running
    running.claims.stop()
    await running.task


# A wake-up that is missed costs `QueueBounds.max_sleep_ms`, a second: half of it tells the two apart.
PROMPT_S = 0.5


async def test_a_slot_that_comes_free_is_used_at_once_though_another_route_has_one(loop: Loop) -> None:
    for name in ("a", "b", "c"):
        await loop.admit(name)
    assert [await loop.next(PROMPT_S) for _ in range(3)] == ["a", "b", "c"]


async def test_a_sleeping_worker_is_woken_by_an_admission(loop: Loop) -> None:
    await loop.admit("first")
    assert await loop.next(PROMPT_S) == "first"
    await asyncio.sleep(3 * CALL_S)  # it sleeps again
    await loop.admit("second", route="other", lane="o")
    assert await loop.next(PROMPT_S) == "second"


async def test_a_lone_item_lingers_as_long_as_it_was_told(loop: Loop) -> None:
    await loop.admit("warm")
    await loop.next(PROMPT_S)
    await asyncio.sleep(3 * CALL_S)
    started = asyncio.get_running_loop().time()
    now_ms = SystemClock().now_ms()
    await loop.queue.admit(now_ms, [item("lone", deadline_ms=now_ms + 3_000, full=8, linger_ms=120)])
    assert await loop.next(PROMPT_S) == "lone"
    assert asyncio.get_running_loop().time() - started >= 0.1


async def test_stopping_finishes_what_is_in_hand(store_connection: RedisConnection) -> None:
    running = Loop(store_connection)
    await running.admit("a")
    assert await running.next(PROMPT_S) == "a"
    running.claims.stop()
    await running.task
    entries = await store_connection.trip([("XLEN", running.queue.keys.replies("g"))])
    assert entries == [1]
