"""A real Valkey for tests of the stores, one server a session, and a connection to it.

Fixtures: `live_store` is the emptied server, `store_connection` a connection in the test's own event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import cached_property

import pytest
import redis

from shared.store.connection import Command, RedisConnection, Reply, open_connection
from tests.valkey import ValkeyServer

CONNECT_S = 10


class LiveStore:
    """The server, the plain client that looks into it, and trips for tests that are not coroutines."""

    def __init__(self) -> None:
        self._server = ValkeyServer(options={"appendonly": "no"})
        self._runner = asyncio.Runner()
        self._runner.run(self._server.start())
        self.url = self._server.url
        self.client = redis.Redis.from_url(self.url)

    @cached_property
    def connection(self) -> RedisConnection:
        """For tests that are not coroutines: `trip` makes its trips."""
        return self._runner.run(self._connect())

    async def _connect(self) -> RedisConnection:
        connection = open_connection(self.url)
        await connection.wait_connected(CONNECT_S)
        return connection

    def trip(self, commands: list[Command]) -> list[Reply]:
        """One trip from outside a coroutine."""
        return self._runner.run(self.connection.trip(commands))

    def close(self) -> None:
        if "connection" in vars(self):
            self._runner.run(self.connection.close())
        self.client.close()
        self._runner.run(self._server.remove())
        self._runner.close()


@pytest.fixture(scope="session")
def _store_server() -> Iterator[LiveStore]:
    store = LiveStore()
    yield store
    store.close()


@pytest.fixture
def live_store(_store_server: LiveStore) -> LiveStore:
    """The session's server, emptied."""
    _store_server.client.flushall()
    return _store_server


@pytest.fixture
async def store_connection(live_store: LiveStore) -> AsyncIterator[RedisConnection]:
    """A connection to the emptied server in this test's event loop."""
    connection = open_connection(live_store.url)
    await connection.wait_connected(CONNECT_S)
    yield connection
    await connection.close()
