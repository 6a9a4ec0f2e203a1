"""Redis connections under many trips and one fault after the other; what they hold for a stalled server."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from shared.errors import StoreError, StoreUnavailableError
from shared.settings import RedisClient
from shared.store.connection import ConnectionOptions, RedisConnection, open_connection
from tests.faults import FaultProxy
from tests.redis_kinds import KINDS, opened, outcome, sockets_open, works_again
from tests.valkey import ValkeyServer

QUICK = ConnectionOptions(trip_s=0.2, connect_s=0.5, stall_s=0.2)
MEGABYTE = 1 << 20


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> RedisClient:
    return request.param


@pytest.fixture
async def server(make_valkey: Callable[..., ValkeyServer]) -> ValkeyServer:
    server = make_valkey(options={"appendonly": "no"})
    await server.start()
    return server


@pytest.fixture
async def proxy(server: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.socket) as proxy:
        yield proxy


async def break_things(server: ValkeyServer, proxy: FaultProxy, dice: random.Random) -> None:
    """Every fault once, in an order of the dice's."""

    async def blackhole() -> None:
        proxy.blackhole()
        await asyncio.sleep(dice.choice([0.05, 0.3, 0.5]))
        proxy.heal()

    async def freeze() -> None:
        server.freeze()
        await asyncio.sleep(dice.choice([0.05, 0.3, 0.5]))
        server.thaw()

    async def at_once(fault: Callable[[], None]) -> None:
        fault()

    faults = [
        blackhole,
        freeze,
        server.restart,
        lambda: at_once(proxy.reset),
        lambda: at_once(lambda: proxy.half_close("client")),
        lambda: at_once(lambda: proxy.half_close("server")),
    ]
    for fault in dice.sample(faults, len(faults)):
        await fault()
        await asyncio.sleep(0.1)


async def ask(
    connection: RedisConnection, asker: int, dice: random.Random, stop: asyncio.Event
) -> Counter[str]:
    """Ask until told to stop: what came of it. A reply that is not the question's fails the test."""
    seen: Counter[str] = Counter()
    number = 0
    while not stop.is_set():
        number += 1
        word = f"{asker}:{number}".encode() * dice.choice([1, 1, 2_000])
        trip = asyncio.create_task(connection.trip([("ECHO", word), ("ECHO", word)]))
        if dice.random() < 0.1:
            await asyncio.sleep(dice.random() * 0.002)
            trip.cancel()
        await asyncio.wait([trip])
        if trip.cancelled():
            seen["cancelled"] += 1
        elif isinstance(trip.exception(), StoreError):
            seen["failed"] += 1
            await asyncio.sleep(0.005)
        else:
            assert trip.result() == [word, word]
            seen["answered"] += 1
    return seen


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_reply_goes_astray_whatever_breaks(
    server: ValkeyServer, proxy: FaultProxy, kind: RedisClient, seed: int
) -> None:
    dice, stop = random.Random(seed), asyncio.Event()
    url = f"redis://127.0.0.1:{proxy.port}"
    async with opened(url, kind, options=QUICK) as connection, asyncio.TaskGroup() as askers:
        asking = [askers.create_task(ask(connection, number, dice, stop)) for number in range(20)]
        await break_things(server, proxy, dice)
        await works_again(connection)
        await asyncio.sleep(0.05)
        stop.set()
    seen = sum((task.result() for task in asking), Counter[str]())
    assert min(seen["answered"], seen["failed"], seen["cancelled"]) > 20, seen


async def test_what_a_stalled_server_makes_us_hold_is_bounded(
    server: ValkeyServer, kind: RedisClient
) -> None:
    bounds = ConnectionOptions(trip_s=0.5, stall_s=5, max_in_flight_bytes=8 * MEGABYTE)
    async with opened(server.url, kind, options=bounds) as connection:
        server.freeze()
        big = ("SET", "k", b"x" * MEGABYTE)
        trips = [asyncio.create_task(outcome(connection.trip([big]))) for _ in range(20)]
        ended = await asyncio.gather(*trips)
        assert all(isinstance(error, StoreUnavailableError) for error, _ in ended)
        assert max(took_s for _, took_s in ended) < 1
        refused = [error for error, took_s in ended if took_s < 0.3]
        assert len(refused) == 13  # a command is a little more than its megabyte: seven fit
        assert all("too many" in str(error) for error in refused)
        server.thaw()
        await works_again(connection)
        assert await connection.trip([big, ("STRLEN", "k")], timeout_s=5) == [b"OK", MEGABYTE]


async def test_what_was_held_is_let_go_when_it_is_answered(server: ValkeyServer, kind: RedisClient) -> None:
    bounds = ConnectionOptions(max_in_flight_bytes=2 * MEGABYTE)
    async with opened(server.url, kind, options=bounds) as connection:
        for _ in range(10):
            assert await connection.trip([("SET", "k", b"x" * MEGABYTE)], timeout_s=5) == [b"OK"]


async def test_what_a_stalled_server_did_not_take_does_not_hold_up_the_end(
    server: ValkeyServer, kind: RedisClient
) -> None:
    before = sockets_open()
    async with opened(server.url, kind) as connection:
        await asyncio.gather(*(connection.trip([("ECHO", number)]) for number in range(5)))
        server.freeze()
        big = ("SET", "k", b"x" * MEGABYTE)
        trips = [asyncio.create_task(outcome(connection.trip([big]))) for _ in range(5)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.5):
            await connection.close()
        assert sockets_open() == before
        assert all(isinstance(error, StoreUnavailableError) for error, _ in await asyncio.gather(*trips))


async def test_sockets_that_were_reset_while_idle_are_not_used_again(
    proxy: FaultProxy, kind: RedisClient
) -> None:
    async with opened(f"redis://127.0.0.1:{proxy.port}", kind) as connection:
        words = [str(number).encode() for number in range(10)]
        await asyncio.gather(*(connection.trip([("ECHO", word)]) for word in words))
        proxy.reset(spared=1)  # the first is the one that tells that the server is there
        await asyncio.sleep(0.05)
        replies = await asyncio.gather(*(connection.trip([("ECHO", word)]) for word in words))
        assert replies == [[word] for word in words]


async def test_many_clients_that_lost_one_server_do_not_come_back_as_one(
    proxy: FaultProxy, kind: RedisClient
) -> None:
    """Ten clients of a server that hangs up: few attempts each, spread over the time between them."""
    loop = asyncio.get_running_loop()
    clients = [open_connection(f"redis://127.0.0.1:{proxy.port}", kind) for _ in range(10)]
    for client in clients:
        await client.wait_connected(5)
    proxy.hangs_up = True
    proxy.reset()
    began_s = loop.time()
    await asyncio.sleep(1.5)
    for client in clients:
        await client.close()
    attempts = [at_s - began_s for at_s in proxy.accepted_s if at_s > began_s]
    # After at most 0.05, 0.1, 0.2, 0.4, 0.8 s, each time, and at least half of that.
    assert 30 <= len(attempts) <= 70
    late = [at_s for at_s in attempts if at_s > 0.3]
    assert len({round(at_s, 2) for at_s in late}) > len(late) / 2
