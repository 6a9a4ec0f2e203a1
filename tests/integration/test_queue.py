"""The deadline queue on a real Valkey: races that are counted, and wake-ups."""

import asyncio

import pytest

from shared.store.connection import RedisConnection
from shared.store.queue import Answer, Cancelled, Claim, DeadlineQueue, QueueBounds, Sleep
from tests.live_store import LiveStore
from tests.queue_items import LEASE_MS, NOW, ROUTES, answers, claimed, hear, item, replies


@pytest.fixture
def queue(store_connection: RedisConnection) -> DeadlineQueue:
    return DeadlineQueue(store_connection)


# Races


async def test_every_item_is_answered_exactly_once(
    store_connection: RedisConnection, queue: DeadlineQueue, live_store: LiveStore
) -> None:
    """4 gateways admit 40 items each while 5 workers race for them, and every fifth batch is lost."""
    gateways, workers, per_gateway = [f"g{n}" for n in range(4)], 5, 40
    total, settled = len(gateways) * per_gateway, 0

    async def gateway(name: str) -> None:
        for number in range(per_gateway):
            one = item(f"{name}-{number}", gateway=name, lane=f"lane{number % 7}", questions=3, full=12)
            assert await queue.admit(NOW, [one]) == [True]

    async def worker(number: int) -> None:
        nonlocal settled
        clock_ms, batches = NOW, 0
        while settled < total:
            batches += 1
            claim = await queue.claim(clock_ms, f"w{number}", f"b{number}-{batches}", {"default": 12}, 50)
            if isinstance(claim, Sleep):
                clock_ms += 20  # so that lost batches are taken over
                await asyncio.sleep(0)
                continue
            if batches % 5 == 0 and claim.items[0].attempts == 0:
                continue
            flags = await queue.settle(claim.batch, claim.fence, answers(claim), final=True)
            settled += sum(flags or [])

    queue.bounds = QueueBounds(max_attempts=1_000)
    async with asyncio.timeout(30):
        await asyncio.gather(*(gateway(name) for name in gateways), *(worker(n) for n in range(workers)))

    for name in gateways:
        answered = [reply.item for reply in await replies(store_connection, queue, name)]
        assert sorted(answered) == sorted(f"{name}-{number}" for number in range(per_gateway))
    assert live_store.client.xlen(queue.keys.log) == total
    assert live_store.client.get(queue.keys.depth) == b"0"
    assert live_store.client.get(queue.keys.bytes) == b"0"
    assert live_store.client.keys(queue.keys.item("*")) == []


async def test_racing_gateways_admit_exactly_what_the_queue_holds(queue: DeadlineQueue) -> None:
    queue.bounds = QueueBounds(max_depth=100)

    async def gateway(number: int) -> int:
        results = [
            await queue.admit(NOW, [item(f"{number}-{n}", lane=f"l{n % 3}", questions=2)]) for n in range(20)
        ]
        return sum(admitted for (admitted,) in results)

    assert sum(await asyncio.gather(*(gateway(n) for n in range(8)))) == 50


async def test_racing_cancel_and_settle_agree_on_one_answer(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item(f"i{n}") for n in range(60)])
    claim = await claimed(queue, "b")
    names = [one.item for one in claim.items]
    verdicts, flags = await asyncio.gather(
        *(
            asyncio.gather(*(queue.cancel([name]) for name in names)),
            asyncio.gather(
                *(
                    queue.settle("b", claim.fence, [Answer(name, "g", b"r", b"row")], final=False)
                    for name in names
                )
            ),
        )
    )
    given_up = [verdict == [Cancelled.CLAIMED] for verdict in verdicts]
    answered = [flag == [True] for flag in flags]
    assert len(names) == 60
    assert all(one != other for one, other in zip(given_up, answered, strict=True))
    assert len(await replies(store_connection, queue)) == sum(answered)


# Wake-ups


async def test_a_lone_item_costs_a_sleeper_one_message_and_one_claim(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = await hear(store_connection, queue, "w")
    assert await queue.claim(NOW, "w", "b1", ROUTES, LEASE_MS) == Sleep(1_000)
    await queue.admit(NOW + 10, [item("i", linger_ms=5)])
    assert await asyncio.wait_for(heard.get(), 5) == b"5"
    await queue.admit(NOW + 10, [item("h", lane="third", linger_ms=5, deadline_ms=NOW + 9_000)])
    await queue.admit(NOW + 12, [item("j", lane="other", linger_ms=5)])  # up by then already
    assert [one.item for one in (await claimed(queue, "b2", NOW + 15)).items] == ["i"]
    assert [one.item for one in (await claimed(queue, "b4", NOW + 15)).items] == ["h"]
    assert await queue.claim(NOW + 15, "w", "b3", ROUTES, LEASE_MS) == Sleep(2)
    assert heard.empty()


async def test_a_wake_up_reaches_a_worker_that_is_really_listening(
    store_connection: RedisConnection, queue: DeadlineQueue, live_store: LiveStore
) -> None:
    for dead in ("dead1", "dead2"):  # asleep by the book, gone from their channels
        await queue.claim(NOW - 300, dead, f"b-{dead}", ROUTES, LEASE_MS)
    heard = await hear(store_connection, queue, "live")
    await queue.claim(NOW, "live", "b", ROUTES, LEASE_MS)
    await queue.admit(NOW, [item("i")])
    assert await asyncio.wait_for(heard.get(), 5) == b"0"
    assert live_store.client.zrange(queue.keys.idle("default"), 0, -1) == []


async def test_a_dead_sleeper_is_not_relied_upon(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item("i", linger_ms=20)])
    assert await queue.claim(NOW, "dead", "b1", ROUTES, LEASE_MS) == Sleep(20)
    heard = await hear(store_connection, queue, "live")
    assert await queue.claim(NOW, "live", "b2", ROUTES, LEASE_MS) == Sleep(20)
    assert heard.empty()


async def test_a_sleeper_that_is_long_overdue_is_not_relied_upon(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = {worker: await hear(store_connection, queue, worker) for worker in ("stuck", "live")}
    await queue.claim(NOW, "stuck", "b1", ROUTES, LEASE_MS)
    await queue.claim(NOW + 900, "live", "b2", ROUTES, LEASE_MS)
    await queue.admit(NOW + 1_100, [item("i")])  # 100 ms late: any moment now
    (pong,) = await store_connection.trip([("PING",)])
    assert pong
    assert heard["live"].empty()
    await queue.admit(NOW + 1_101, [item("j", lane="other")])
    assert await asyncio.wait_for(heard["live"].get(), 5) == b"0"
    assert heard["stuck"].empty()


async def test_what_a_worker_takes_back_for_others_is_told_to_them(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = await hear(store_connection, queue, "bosses")
    await queue.admit(NOW, [item("i", route="boss", lane="boss|l")])
    claim = await queue.claim(NOW, "w", "b1", {"boss": 4}, 5_000)
    assert isinstance(claim, Claim)
    assert await queue.claim(NOW, "bosses", "b2", {"boss": 4}, LEASE_MS) == Sleep(1_000)
    await queue.settle("b1", claim.fence, [], final=True)
    assert await queue.claim(NOW + 10, "other", "b3", ROUTES, LEASE_MS) == Sleep(1_000)
    assert await asyncio.wait_for(heard.get(), 5) == b"0"


async def test_only_one_of_many_sleepers_comes_for_a_lane(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    for worker in ("w1", "w2", "w3"):
        await hear(store_connection, queue, worker)
    await queue.admit(NOW, [item("i", linger_ms=20)])
    sleeps = [await queue.claim(NOW, worker, worker, ROUTES, LEASE_MS) for worker in ("w1", "w2", "w3")]
    assert sleeps == [Sleep(20), Sleep(1_000), Sleep(1_000)]


async def test_a_claim_that_leaves_work_wakes_the_next_sleeper(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = {worker: await hear(store_connection, queue, worker) for worker in ("w1", "w2")}
    for worker in heard:
        await queue.claim(NOW, worker, f"b-{worker}", ROUTES, LEASE_MS)
    await queue.admit(NOW, [item("i", lane="one"), item("j", lane="two", deadline_ms=NOW + 9_000)])
    assert await asyncio.wait_for(heard["w1"].get(), 5) == b"0"
    assert heard["w2"].empty()
    await claimed(queue, "b", worker="w1")
    assert await asyncio.wait_for(heard["w2"].get(), 5) == b"0"


async def test_nobody_is_told_while_all_workers_are_busy(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = await hear(store_connection, queue, "w")
    await queue.admit(NOW, [item("i")])
    await claimed(queue, "b")
    await queue.admit(NOW, [item("j"), item("k", lane="other")])
    (pong,) = await store_connection.trip([("PING",)])
    assert pong
    assert heard.empty()


async def test_a_route_without_a_slot_is_left_to_those_who_have_one(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    heard = {worker: await hear(store_connection, queue, worker) for worker in ("w1", "w2")}
    await queue.admit(NOW, [item("i", route="boss", lane="boss|l", linger_ms=50)])
    both = {"default": 64, "boss": 4}
    assert await queue.claim(NOW, "w1", "b1", both, LEASE_MS) == Sleep(50)
    assert await queue.claim(NOW, "w2", "b2", both, LEASE_MS) == Sleep(1_000)
    # The one who was to come has no slot for bosses any more.
    full = {"default": 64, "boss": 0}
    assert await queue.claim(NOW + 50, "w1", "b3", full, LEASE_MS) == Sleep(1_000)
    assert await asyncio.wait_for(heard["w2"].get(), 5) == b"0"
    assert heard["w1"].empty()
