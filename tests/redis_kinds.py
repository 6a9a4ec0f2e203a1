"""Opening Redis connections of both kinds in tests, and seeing that their end leaves nothing behind."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import get_args

from shared.errors import StoreError
from shared.settings import RedisClient
from shared.store.connection import ConnectionOptions, RedisConnection, open_connection

KINDS: tuple[RedisClient, ...] = get_args(RedisClient)

OF_A_TEST = "test:"  # the names of tasks that are a test's own, such as a proxy's

SCRIPTS = {
    "bump": "return redis.call('INCR', KEYS[1])",
    "add": "return redis.call('INCRBY', KEYS[1], ARGV[1])",
    "broken": "this is no Lua",
}


@asynccontextmanager
async def opened(
    url: str, kind: RedisClient, *, up: bool = True, options: ConnectionOptions | None = None
) -> AsyncIterator[RedisConnection]:
    """A connection with the scripts above, connected unless not `up`; checks what its end leaves."""
    before = asyncio.all_tasks()
    connection = open_connection(url, kind, options=options, source=SCRIPTS.__getitem__)
    try:
        if up:
            await connection.wait_connected(5)
        yield connection
    finally:
        await connection.close()
    gc.collect()  # a socket or exception that was left says so now, and warnings are errors
    left = {task.get_name() for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    assert not {name for name in left if not name.startswith(OF_A_TEST)}, left


def sockets_open() -> int:
    """How many sockets this process holds. Linux."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            count += str(link.readlink()).startswith("socket:")
    return count


async def works_again(connection: RedisConnection, timeout_s: float = 10.0) -> None:
    """Return when a trip is answered; raises TimeoutError when none is in time."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                assert await connection.trip([("PING",)], timeout_s=0.5) == [b"PONG"]
            except StoreError:
                await asyncio.sleep(0.02)
            else:
                return


async def outcome(trip: Awaitable[list[object]]) -> tuple[object, float]:
    """What a trip gave or raised, and after how many seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        result: object = await trip
    except StoreError as error:
        result = error
    return result, loop.time() - began_s
