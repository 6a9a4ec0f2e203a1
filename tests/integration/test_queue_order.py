"""The deadline queue on a real Valkey: who comes first, what is dropped, leases and bounds."""

import os

import pytest

from shared.store.connection import RedisConnection
from shared.store.queue import Answer, Cancelled, Claim, ClaimedItem, DeadlineQueue, QueueBounds, Sleep
from tests.live_store import LiveStore
from tests.queue_items import LEASE_MS, NOW, ROUTES, answers, claimed, item, replies
from tests.waiting import eventually


@pytest.fixture
def queue(store_connection: RedisConnection) -> DeadlineQueue:
    return DeadlineQueue(store_connection)


def names(claim: Claim) -> list[str]:
    return [one.item for one in claim.items]


# Order


async def test_an_item_comes_back_as_it_was_admitted(queue: DeadlineQueue) -> None:
    payload = os.urandom(100 * 1024)
    await queue.admit(NOW, [item("i", lane="a:b|ü", priority=1, payload=payload)])
    assert await queue.claim(NOW, "w", "b", ROUTES, LEASE_MS) == Claim(
        batch="b",
        lane="a:b|ü",
        priority=1,
        fence=1,
        route="default",
        items=[ClaimedItem("i", "g", 0, NOW + 3_000, payload)],
    )


async def test_a_batch_is_one_lane_by_deadline_up_to_the_cap(queue: DeadlineQueue) -> None:
    deadlines = {"late": 900, "soon": 500, "next": 600, "last": 950}
    await queue.admit(
        NOW, [item(name, deadline_ms=NOW + within, questions=4) for name, within in deadlines.items()]
    )
    await queue.admit(NOW, [item("elsewhere", lane="other", deadline_ms=NOW + 700)])
    first = await queue.claim(NOW, "w", "b1", {"default": 11}, LEASE_MS)
    assert isinstance(first, Claim)
    assert names(first) == ["soon", "next"]
    assert names(await claimed(queue, "b2")) == ["elsewhere"]
    assert names(await claimed(queue, "b3")) == ["late", "last"]


async def test_an_item_above_the_cap_is_a_batch_of_its_own(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("large", questions=100), item("small", deadline_ms=NOW + 3_001)])
    assert names(await claimed(queue, "b1")) == ["large"]
    assert names(await claimed(queue, "b2")) == ["small"]


async def test_classes_are_strict_but_for_the_lower_ones_share(queue: DeadlineQueue) -> None:
    """Every third batch goes to a lower class: to normal, high, background in turn."""
    queue.bounds = QueueBounds(lower_share=3)
    for number in range(12):
        await queue.admit(
            NOW, [item(f"{number}-{priority}", priority=priority, lane=f"{number}") for priority in range(4)]
        )
    order = [(await claimed(queue, f"b{number}")).priority for number in range(12)]
    assert order == [0, 0, 2, 0, 0, 1, 0, 0, 3, 0, 0, 2]


async def test_without_a_share_the_most_urgent_class_comes_first(queue: DeadlineQueue) -> None:
    queue.bounds = QueueBounds(lower_share=0)
    soon = {"deadline_ms": NOW + 100}
    await queue.admit(NOW, [item("n", priority=2, lane="n", **soon), item("c", priority=0, lane="c")])
    await queue.admit(NOW, [item("r", priority=0, lane="r", route="boss", deadline_ms=NOW + 2_000)])
    routes = {"default": 64, "boss": 4}
    found = [await queue.claim(NOW, "w", f"b{number}", routes, LEASE_MS) for number in range(3)]
    assert [names(one) for one in found if isinstance(one, Claim)] == [["r"], ["c"], ["n"]]


async def test_the_most_urgent_of_thousands_of_lanes_comes_first(
    queue: DeadlineQueue, live_store: LiveStore
) -> None:
    many = [item(f"i{n}", lane=f"l{n}", deadline_ms=NOW + 5_000 + n) for n in range(3_000)]
    await queue.admit(NOW, [*many[1_500:], *many[:1_500], item("boss", priority=0, lane="boss")])
    assert names(await claimed(queue, "b1")) == ["boss"]
    live_store.client.config_resetstat()
    assert names(await claimed(queue, "b2")) == ["i0"]
    calls = live_store.client.info("commandstats").values()
    assert sum(stat["calls"] for stat in calls) < 40  # whatever the number of lanes


async def test_a_lane_waits_for_company_until_it_is_full(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("i", questions=3, full=6, linger_ms=40)])
    assert await queue.claim(NOW + 39, "w", "b1", ROUTES, LEASE_MS) == Sleep(1)
    await queue.admit(NOW + 39, [item("j", questions=3, full=6, linger_ms=40)])
    assert names(await claimed(queue, "b2", NOW + 39)) == ["i", "j"]


async def test_of_a_near_deadline_a_quarter_is_spent_on_waiting(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("i", deadline_ms=NOW + 60, linger_ms=40)])
    assert await queue.claim(NOW, "w", "b1", ROUTES, LEASE_MS) == Sleep(15)


async def test_a_drained_lane_leaves_nothing_and_fills_again(
    queue: DeadlineQueue, live_store: LiveStore
) -> None:
    for batch in ("b1", "b2"):
        await queue.admit(NOW, [item(f"i-{batch}"), item(f"j-{batch}")])
        claim = await claimed(queue, batch)
        assert await queue.settle(batch, claim.fence, answers(claim), final=True) == [True, True]
        left = {name.decode() for name in live_store.client.keys("*")}
        assert left == {
            queue.keys.depth,
            queue.keys.bytes,
            queue.keys.turn,
            queue.keys.log,
            queue.keys.replies("g"),
        }
        assert live_store.client.mget(queue.keys.depth, queue.keys.bytes) == [b"0", b"0"]


async def test_a_remainder_that_fills_a_request_is_ready_at_once(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item(f"i{n}", questions=2, full=4, linger_ms=40) for n in range(6)])
    for batch in ("b1", "b2", "b3"):
        claim = await queue.claim(NOW, "w", batch, {"default": 4}, LEASE_MS)
        assert isinstance(claim, Claim)
        assert len(claim.items) == 2
    assert await queue.claim(NOW, "w", "b4", {"default": 4}, LEASE_MS) == Sleep(1_000)


# Drops and bounds


async def test_what_cannot_be_answered_in_time_is_dropped_not_claimed(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item("late", deadline_ms=NOW + 100), item("fine", deadline_ms=NOW + 101)])
    assert names(await claimed(queue, "b", NOW + 81)) == ["fine"]
    (dropped,) = await replies(store_connection, queue)
    assert (dropped.item, dropped.reply, dropped.code) == ("late", None, "busy")
    assert await queue.cancel(["late"]) == [Cancelled.GONE]


async def test_an_item_whose_key_expired_is_uncounted(queue: DeadlineQueue, live_store: LiveStore) -> None:
    queue.bounds = QueueBounds(grace_ms=1)
    await queue.admit(NOW, [item("i", deadline_ms=NOW + 1, linger_ms=1_000)])

    async def expired() -> bool:
        return not live_store.client.exists(queue.keys.item("i"))

    await eventually(expired)
    assert await queue.cancel(["i"]) == [Cancelled.GONE]
    assert live_store.client.get(queue.keys.depth) == b"1"
    assert await queue.claim(NOW + 1, "w", "b", ROUTES, LEASE_MS) == Sleep(1_000)
    assert live_store.client.mget(queue.keys.depth, queue.keys.bytes) == [b"0", b"0"]
    assert not live_store.client.exists(queue.keys.waiting)


async def test_the_queue_refuses_what_it_cannot_hold(queue: DeadlineQueue) -> None:
    queue.bounds = QueueBounds(max_depth=10, max_bytes=1_000)
    large = b"p" * 600
    assert await queue.admit(
        NOW, [item("a", questions=6), item("b", questions=5), item("c", questions=4)]
    ) == [
        True,
        False,
        True,
    ]
    await queue.cancel(["a", "c"])
    assert await queue.admit(NOW, [item("d", payload=large), item("e", payload=large)]) == [True, False]
    await claimed(queue, "b")  # what is claimed waits no more
    assert await queue.admit(NOW, [item("e", payload=large)]) == [True]


async def test_a_repeated_admission_counts_once(queue: DeadlineQueue, live_store: LiveStore) -> None:
    assert await queue.admit(NOW, [item("i", questions=3)]) == [True]
    assert await queue.admit(NOW + 5, [item("i", questions=3)]) == [True]
    assert live_store.client.get(queue.keys.depth) == b"3"
    assert names(await claimed(queue, "b")) == ["i"]


# Leases


async def test_a_dead_workers_batch_is_claimed_again(
    store_connection: RedisConnection, queue: DeadlineQueue, live_store: LiveStore
) -> None:
    await queue.admit(NOW, [item("i", questions=2), item("short", deadline_ms=NOW + LEASE_MS)])
    lost = await claimed(queue, "b1", worker="dead")
    assert await queue.claim(NOW + LEASE_MS - 1, "w", "b2", ROUTES, LEASE_MS) == Sleep(1)
    again = await claimed(queue, "b3", NOW + LEASE_MS)
    assert [(one.item, one.attempts) for one in again.items] == [("i", 1)]
    assert [(one.item, one.code) for one in await replies(store_connection, queue)] == [
        ("short", "unavailable")
    ]
    # The dead one was only paused: what it says late changes nothing.
    before = live_store.client.dump(queue.keys.replies("g")), live_store.client.keys("*")
    assert await queue.settle("b1", lost.fence, answers(lost, "late"), final=True) is None
    assert not await queue.extend(NOW + LEASE_MS, "b1", lost.fence, LEASE_MS)
    assert (live_store.client.dump(queue.keys.replies("g")), live_store.client.keys("*")) == before
    assert await queue.settle("b3", again.fence, answers(again), final=True) == [True]
    assert [one.reply for one in await replies(store_connection, queue)] == [None, b"reply i"]


async def test_a_batch_that_comes_back_joins_its_lane(queue: DeadlineQueue, live_store: LiveStore) -> None:
    few = {"questions": 2, "full": 4, "linger_ms": 40}
    await queue.admit(NOW, [item("i", **few), item("j", **few)])
    await claimed(queue, "b1")
    await queue.admit(NOW + LEASE_MS, [item("k", **few)])
    # Seen by a worker that has no slot for it: it waits, full now, and everything about it expires.
    no_slot = {"default": 0}
    assert await queue.claim(NOW + LEASE_MS, "w", "b2", no_slot, LEASE_MS) == Sleep(1_000)
    assert not live_store.client.exists(queue.keys.due("default"))
    assert live_store.client.zcard(queue.keys.ready("default")) == 1
    assert [name for name in live_store.client.keys("*") if live_store.client.pttl(name) < 0] == []
    assert live_store.client.get(queue.keys.depth) == b"6"
    assert names(await claimed(queue, "b3", NOW + LEASE_MS)) == ["i", "j", "k"]


async def test_a_batch_that_comes_back_to_an_empty_queue_expires_too(
    queue: DeadlineQueue, live_store: LiveStore
) -> None:
    await queue.admit(NOW, [item("i", questions=4, full=4)])
    await claimed(queue, "b1")
    live_store.client.delete(queue.keys.depth, queue.keys.bytes)  # as after an hour without admission
    await queue.claim(NOW + LEASE_MS, "w", "b2", {"default": 0}, LEASE_MS)
    assert [name for name in live_store.client.keys("*") if live_store.client.pttl(name) < 0] == []
    assert live_store.client.mget(queue.keys.depth, queue.keys.bytes) == [b"4", b"7"]


async def test_an_item_is_given_up_when_two_workers_died_with_it(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item("i")])
    await claimed(queue, "b1")
    await claimed(queue, "b2", NOW + LEASE_MS)
    assert await queue.claim(NOW + 2 * LEASE_MS, "w", "b3", ROUTES, LEASE_MS) == Sleep(1_000)
    assert [(one.item, one.code) for one in await replies(store_connection, queue)] == [("i", "unavailable")]


async def test_an_extended_lease_is_kept(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("i")])
    claim = await claimed(queue, "b1")
    assert await queue.extend(NOW + 900, "b1", claim.fence, LEASE_MS)
    assert await queue.claim(NOW + 1_899, "w", "b2", ROUTES, LEASE_MS) == Sleep(1)
    assert names(await claimed(queue, "b3", NOW + 1_900)) == ["i"]


async def test_a_fence_of_another_claim_settles_nothing(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item("i")])
    claim = await claimed(queue, "b")
    assert await queue.settle("b", claim.fence + 1, answers(claim), final=True) is None
    assert await replies(store_connection, queue) == []
    assert await queue.settle("b", claim.fence, answers(claim), final=True) == [True]


async def test_items_can_be_answered_one_by_one(
    store_connection: RedisConnection, queue: DeadlineQueue, live_store: LiveStore
) -> None:
    await queue.admit(NOW, [item("i"), item("j", gateway="h")])
    claim = await claimed(queue, "b")
    first, second = answers(claim)
    assert await queue.settle("b", claim.fence, [first], final=False) == [True]
    assert await queue.settle("b", claim.fence, [first, second], final=True) == [False, True]
    assert [one.reply for one in await replies(store_connection, queue)] == [b"reply i"]
    assert [one.reply for one in await replies(store_connection, queue, "h")] == [b"reply j"]
    assert live_store.client.xlen(queue.keys.log) == 2


async def test_what_a_final_settle_leaves_goes_to_the_next_claim(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("i"), item("j")])
    claim = await claimed(queue, "b1")
    assert await queue.settle("b1", claim.fence, answers(claim)[:1], final=True) == [True]
    assert await queue.settle("b1", claim.fence, answers(claim)[1:], final=True) is None
    assert names(await claimed(queue, "b2", worker="other")) == ["j"]


async def test_an_item_that_was_given_up_is_answered_by_nobody_else(
    store_connection: RedisConnection, queue: DeadlineQueue
) -> None:
    await queue.admit(NOW, [item("claimed")])
    claim = await claimed(queue, "b1")
    await queue.admit(NOW, [item("queued")])
    verdicts = await queue.cancel(["claimed", "queued", "unknown", "claimed"])
    assert verdicts == [Cancelled.CLAIMED, Cancelled.QUEUED, Cancelled.GONE, Cancelled.GONE]
    assert await queue.settle("b1", claim.fence, answers(claim), final=True) == [False]
    assert await replies(store_connection, queue) == []
    assert await queue.claim(NOW, "w", "b2", ROUTES, LEASE_MS) == Sleep(1_000)


async def test_a_given_up_item_is_not_taken_over(queue: DeadlineQueue) -> None:
    await queue.admit(NOW, [item("i"), item("j")])
    await claimed(queue, "b1")
    await queue.cancel(["i"])
    assert names(await claimed(queue, "b2", NOW + LEASE_MS)) == ["j"]


async def test_an_answer_without_a_log_entry_writes_none(queue: DeadlineQueue, live_store: LiveStore) -> None:
    await queue.admit(NOW, [item("i")])
    claim = await claimed(queue, "b")
    assert await queue.settle("b", claim.fence, [Answer("i", "g", b"r")], final=True) == [True]
    assert not live_store.client.exists(queue.keys.log)
