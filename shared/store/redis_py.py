"""`RedisConnection` on redis-py: slower, widely known, and what the thin connection is measured against.

Each trip has a socket of its own while it lasts. One more socket watches: it carries the channels, and its
loss is how the loss of the server is noticed when no trip is made.
"""

import asyncio
from collections.abc import Callable, Sequence

from shared.errors import StoreUnavailableError
from shared.store.commands import Command, pack
from shared.store.connection import ConnectionOptions, Deliver, Reply
from shared.store.keeper import Keeper
from shared.store.redis_py_socket import DriverSocket, Watcher
from shared.store.redis_url import RedisUrl
from shared.store.scripts import Script, Scripts, merge_retried, retry_commands


class RedisPyConnection:
    """`RedisConnection` over a pool of redis-py's connections."""

    def __init__(self, where: RedisUrl, options: ConnectionOptions, scripts: Scripts) -> None:
        """Connects in the background; needs a running loop."""
        self._where = where
        self._options = options
        self._scripts = scripts
        self._watcher: Watcher | None = None  # only while trips may be made
        self._idle: list[DriverSocket] = []
        self._busy: set[DriverSocket] = set()
        self._places = asyncio.Semaphore(options.max_sockets)
        self._in_flight_bytes = 0
        self._channels: dict[bytes, Deliver] = {}
        self._keeper = Keeper(self._session, str(where))

    @property
    def connected(self) -> bool:
        return self._watcher is not None

    async def wait_connected(self, timeout_s: float) -> None:
        await self._keeper.wait_connected(timeout_s)

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self._keeper.on_reconnect(callback)

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        if not commands:
            return []
        timeout_s = self._options.trip_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready(timeout_s)
                replies = await self._exchange(commands)
                lost = self._scripts.unknown_to_server(commands, replies)
                if lost:
                    merge_retried(replies, lost, await self._exchange(retry_commands(commands, lost)))
        except TimeoutError as exc:
            raise StoreUnavailableError("no answer in time") from exc
        return replies

    def script(self, name: str) -> Script:
        return self._scripts.named(name)

    async def listen(self, channel: str, deliver: Deliver) -> None:
        name = channel.encode()
        try:
            async with asyncio.timeout(self._options.trip_s):
                watcher = await self._ready(self._options.trip_s)
                self._channels[name] = deliver  # before the confirmation: messages may come with it
                try:
                    await watcher.subscribe(name)
                except BaseException:
                    self._channels.pop(name, None)
                    raise
        except TimeoutError as exc:
            raise StoreUnavailableError("no answer in time") from exc

    def blocking(self) -> "RedisPyConnection":
        return RedisPyConnection(self._where, self._options, self._scripts)

    async def close(self) -> None:
        await self._keeper.close()

    async def _ready(self, timeout_s: float) -> Watcher:
        """Waits for the first attempt, if it is not over yet; afterwards fails at once."""
        if self._watcher is None:
            await self._keeper.first_attempt(timeout_s)
        if self._watcher is None:
            raise self._keeper.unavailable()
        return self._watcher

    async def _exchange(self, commands: Sequence[Command]) -> list[Reply]:
        sent = b"".join(pack(commands))
        if self._in_flight_bytes + len(sent) > self._options.max_in_flight_bytes:
            raise StoreUnavailableError(
                f"{self._in_flight_bytes} bytes are in flight, {len(sent)} more are too many"
            )
        self._in_flight_bytes += len(sent)
        try:
            async with self._places:
                if self._watcher is None:  # it was lost while we waited for a place
                    raise self._keeper.unavailable()
                socket = self._idle.pop() if self._idle else DriverSocket(self._where, self._options)
                self._busy.add(socket)
                try:
                    replies = await socket.exchange(sent, len(commands))
                except BaseException:
                    socket.abort()  # replies may be on their way that are nobody's
                    raise
                finally:
                    self._busy.discard(socket)
                self._idle.append(socket)
                return replies
        finally:
            self._in_flight_bytes -= len(sent)

    async def _session(self, established: Callable[[], None]) -> None:
        """Open the watching socket, prepare the server, let trips be made; raises what ended it."""
        watcher = Watcher(DriverSocket(self._where, self._options), self._options.stall_s, self._pushed)
        try:
            async with asyncio.timeout(self._options.connect_s):
                await watcher.open(self._scripts.loads(), list(self._channels))
            self._watcher = watcher
            established()
            await watcher.watch()
        finally:
            self._watcher = None
            sockets = [watcher.socket, *self._idle, *self._busy]
            self._idle = []
            for socket in sockets:
                socket.abort()
            await asyncio.gather(*(socket.closed() for socket in sockets))

    def _pushed(self, channel: bytes, message: bytes) -> None:
        deliver = self._channels.get(channel)
        if deliver is not None:
            asyncio.get_running_loop().call_soon(
                deliver, message
            )  # what it raises goes to the loop's handler
