"""The decide path's own Redis connection: hiredis for the wire, one socket, one future per trip.

A trip of four commands costs a third of what it costs in a general client, and trips are most of the decide
path. What it leaves out (pools, pipelines as objects, response callbacks, retries) is what costs.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import hiredis
import structlog

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.connection import (
    DEFAULT_TIMEOUT_S,
    Address,
    Command,
    Deliver,
    RedisConnection,
    Reply,
    Script,
    Scripts,
)

CONNECT_TIMEOUT_S = 2.0
FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0
SWEEP_S = 0.05  # how exactly timeouts are kept
STALL_S = 2.0  # a server that is silent for so long after a timeout is taken for dead
MAX_UNSENT_BYTES = 32 << 20  # what a server that does not read may make us hold

# The library's own signature names a wider element type than `Command` has, and tuples do not widen.
_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)
_NOTHING = object()  # the reader needs more bytes

_log = structlog.get_logger(__name__)


class _Trip:
    """Commands on the wire whose replies have yet to come."""

    __slots__ = ("deadline_s", "done", "left", "replies")

    def __init__(self, count: int, deadline_s: float, done: "asyncio.Future[list[Reply]]") -> None:
        self.left = count
        self.deadline_s = deadline_s
        self.done = done
        self.replies: list[Reply] = []


class _Socket(asyncio.Protocol):
    """One connected socket: replies are matched to trips by their order, whoever still waits for them."""

    def __init__(self, lost: Callable[["_Socket"], None], pushed: Callable[[list[Reply]], None]) -> None:
        self._lost = lost
        self._pushed = pushed
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=StoreUnavailableError, replyError=StoreReplyError, notEnoughData=_NOTHING
        )
        self._trips: deque[_Trip] = deque()
        self._transport: asyncio.Transport | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def send(self, commands: Sequence[Command], timeout_s: float) -> "asyncio.Future[list[Reply]]":
        """Write commands; the future has their replies, or StoreUnavailableError."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise StoreUnavailableError("Redis is not connected")
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise StoreUnavailableError("Redis does not take what it is sent")
        done: asyncio.Future[list[Reply]] = self._loop.create_future()
        self._trips.append(_Trip(len(commands), self._loop.time() + timeout_s, done))
        if len(commands) == 1:
            transport.write(_pack(commands[0]))
        else:
            transport.write(b"".join(map(_pack, commands)))
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_S, self._look_at_time)
        return done

    def tell(self, command: Command) -> None:
        """Write a command that the server answers with a push, not with a reply."""
        if self._transport is None:
            raise StoreUnavailableError("Redis is not connected")
        self._transport.write(_pack(command))

    def close(self) -> None:
        """Close the socket; trips in flight fail."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # a stream's is one

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._sweep is not None:
            self._sweep.cancel()
        trips, self._trips = self._trips, deque()
        for trip in trips:
            if not trip.done.done():
                trip.done.set_exception(StoreUnavailableError("the connection to Redis was lost"))
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        trips = self._trips
        try:
            while (reply := reader.gets()) is not _NOTHING:
                if isinstance(reply, hiredis.PushNotification):
                    self._pushed(reply)
                    continue
                trip = trips[0]
                trip.replies.append(reply)
                trip.left -= 1
                if trip.left == 0:
                    trips.popleft()
                    if not trip.done.done():
                        trip.done.set_result(trip.replies)
        except (StoreUnavailableError, IndexError):
            _log.error("Redis sent what nobody asked for")
            self.close()

    def _look_at_time(self) -> None:
        """Fail trips whose time is up; their replies are still expected, and swallowed when they come."""
        now_s = self._loop.time()
        self._sweep = None
        for trip in self._trips:
            if now_s >= trip.deadline_s and not trip.done.done():
                trip.done.set_exception(StoreUnavailableError("Redis did not answer in time"))
        if self._trips:
            if now_s >= self._trips[0].deadline_s + STALL_S:
                _log.warning("Redis is silent: reconnecting")
                self.close()
                return
            self._sweep = self._loop.call_later(SWEEP_S, self._look_at_time)


class ThinConnection:
    """`RedisConnection` over one socket at a time."""

    def __init__(self, address: Address, scripts: Scripts) -> None:
        self._address = address
        self._scripts = scripts
        self._socket: _Socket | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._channels: dict[bytes, Deliver] = {}
        self._connecting = asyncio.create_task(self._connect_until_up(), name="redis-connect")

    @property
    def connected(self) -> bool:
        """Whether a trip made now would be sent."""
        return self._socket is not None

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the first connection; raises StoreUnavailableError when there is none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            raise StoreUnavailableError("Redis cannot be reached") from None

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        """Send commands together, return their replies in order (see `RedisConnection`)."""
        socket = self._socket
        if socket is None:
            raise StoreUnavailableError("Redis is not connected")
        replies = await socket.send(commands, DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s)
        for reply in replies:
            if reply.__class__ is StoreReplyError:
                return await self._with_scripts(commands, replies, timeout_s)
        return replies

    async def _with_scripts(
        self, commands: Sequence[Command], replies: list[Reply], timeout_s: float | None
    ) -> list[Reply]:
        """Run again, once, what failed because the server did not have its script."""
        missing = self._scripts.missing(commands, replies)
        socket = self._socket
        if not missing or socket is None:
            return replies
        loads = self._scripts.load_commands()
        again = await socket.send(
            [*loads, *(commands[place] for place in missing)], timeout_s or DEFAULT_TIMEOUT_S
        )
        for place, reply in zip(missing, again[len(loads) :], strict=True):
            replies[place] = reply
        return replies

    def script(self, name: str) -> Script:
        """The script `lua/<name>.lua`, ready to be called on this connection."""
        return self._scripts.named(name)

    async def listen(self, channel: str, deliver: Deliver) -> None:
        """Call `deliver` with every message of a sharded channel (see `RedisConnection`)."""
        name = channel.encode()
        self._channels[name] = deliver
        if self._socket is None:
            raise StoreUnavailableError("Redis is not connected")
        await self._subscribe(self._socket, [name])

    def blocking(self) -> RedisConnection:
        """Another connection of the same settings, for commands that block."""
        return ThinConnection(self._address, self._scripts)

    async def close(self) -> None:
        """End it: trips in flight fail, nothing is left behind."""
        self._closed = True
        self._connecting.cancel()
        if self._socket is not None:
            self._socket.close()
        await asyncio.gather(self._connecting, return_exceptions=True)
        await asyncio.sleep(0)  # the transport reports its end in the next turn of the loop

    async def _connect_until_up(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    self._socket = await self._connect()
            except (OSError, TimeoutError, StoreUnavailableError, StoreReplyError) as error:
                _log.debug("Redis cannot be reached", error=str(error))
            else:
                self._up.set()
                return
            # Jitter: the processes that lost one server must not come back at one moment.
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.5))  # noqa: S311 -- not a secret
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)

    async def _connect(self) -> _Socket:
        """Open, enter and prepare a socket: scripts and channels are there before its first trip."""
        address = self._address
        loop = asyncio.get_running_loop()

        def make() -> _Socket:
            return _Socket(self._lost, self._pushed)

        if address.path is not None:
            _, socket = await loop.create_unix_connection(make, address.path)
        else:
            _, socket = await loop.create_connection(
                make, address.host, address.port, ssl=address.tls_context()
            )
        try:
            replies = await socket.send(
                [*_entering(address), *self._scripts.load_commands()], CONNECT_TIMEOUT_S
            )
            _require_entered(replies)
            if self._channels:
                await self._subscribe(socket, list(self._channels))
        except BaseException:
            socket.close()
            raise
        return socket

    async def _subscribe(self, socket: _Socket, channels: Sequence[bytes]) -> None:
        # The server confirms with a push; the PING behind it is answered when all of them are through.
        commands: list[Command] = [("SSUBSCRIBE", channel) for channel in channels]
        for command in commands:
            socket.tell(command)
        await socket.send([("PING",)], DEFAULT_TIMEOUT_S)

    def _lost(self, socket: _Socket) -> None:
        if socket is self._socket:
            self._socket = None
            if not self._closed:
                self._connecting = asyncio.create_task(self._connect_until_up(), name="redis-connect")

    def _pushed(self, message: list[Reply]) -> None:
        if message[0] != b"smessage":
            return
        deliver = self._channels.get(message[1])
        if deliver is not None:
            try:
                deliver(message[2])
            except Exception:  # noqa: BLE001 -- a listener's fault must not end the connection it came on
                _log.exception("a listener failed", channel=message[1].decode(errors="replace"))


def _require_entered(replies: Sequence[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, StoreReplyError):
            raise reply


def _entering(address: Address) -> list[Command]:
    hello: list[str] = ["HELLO", "3"]
    if address.password is not None:
        hello += ["AUTH", address.username or "default", address.password]
    commands: list[Command] = [(*hello, "SETNAME", "muster")]
    if address.database:
        commands.append(("SELECT", address.database))
    return commands
