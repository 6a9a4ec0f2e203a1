"""A real Valkey for tests of the stores, one server a session, and a connection to it.

Fixtures: `live_store` is the emptied server, `store_connection` a connection in the test's own event loop.
"""

import asyncio
import ctypes
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from deploy.embedded.binaries import valkey_server
from shared.store.connection import Command, RedisConnection, Reply, open_connection

CONNECT_S = 10
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


class LiveStore:
    """The server, the plain client that looks into it, and trips for tests that are not coroutines."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-store-"))
        socket = self._folder / "valkey.sock"
        argv = [valkey_server(), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", self._folder]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        self.url = f"unix://{socket}"
        # It answers some milliseconds after its start.
        patient = Retry(ConstantBackoff(0.02), 500, supported_errors=(redis.ConnectionError,))
        self.client = redis.Redis.from_url(self.url, retry=patient)
        self.client.ping()
        self._runner = asyncio.Runner()

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
        self._runner.close()
        self.client.close()
        self._process.terminate()
        self._process.wait(timeout=20)
        shutil.rmtree(self._folder)


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
