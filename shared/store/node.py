"""One socket to one Redis server, from its opening to its loss: trips in flight, their order and their time.

Knows neither scripts nor reconnection nor which node a key belongs to: that is the business of who opened it.
"""

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.commands import Command, pack
from shared.store.redis_url import RedisUrl

Push = list[Any]

_MORE: Final = object()  # the reader has no complete reply
_UNTOLD_S: Final = 0.1  # for the end of a socket that may not be told
_LOOK_AGAIN_S: Final = 0.005  # bounds the work of looking through many trips that expire one after the other
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # seconds, seconds, probes


class Trip:
    """Commands that were sent together; `done` has their replies, or StoreUnavailableError."""

    __slots__ = ("deadline", "done", "failed", "replies", "size", "wanted")

    def __init__(self, done: "asyncio.Future[list[Any]]", wanted: int, size: int, deadline: float) -> None:
        self.done = done
        self.wanted = wanted
        self.size = size
        self.deadline = deadline
        self.failed = False  # whether an error is among the replies
        self.replies: list[Any] = []


class Node(asyncio.Protocol):
    """A live socket. Replies are matched to trips by their order, whoever still waits for them."""

    def __init__(self, stall_s: float, max_in_flight_bytes: int, pushed: Callable[[Push], None]) -> None:
        """`pushed` gets what the server says unasked; it must not raise."""
        self._stall_s = stall_s
        self._max_in_flight_bytes = max_in_flight_bytes
        self._pushed = pushed
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=StoreUnavailableError, replyError=StoreReplyError, notEnoughData=_MORE
        )
        self._trips: deque[Trip] = deque()
        self._unsent: list[bytes] = []
        self._in_flight_bytes = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._transport: asyncio.Transport | None = None
        self._loss: StoreUnavailableError | None = None
        self.opened = False  # whether `connect_node` came to its end
        self.lost: asyncio.Future[StoreUnavailableError] = self._loop.create_future()
        self._closed = self._loop.create_future()

    @property
    def usable(self) -> bool:
        """False from the moment that the socket is lost or given up."""
        return self._loss is None

    def send(self, commands: Sequence[Command], timeout_s: float) -> Trip:
        """Send commands (at least one) before this turn of the loop is over.

        Raises StoreUnavailableError when the socket is lost or too much is in flight, TypeError or ValueError
        for what cannot be encoded; nothing is sent then.
        """
        if self._loss is not None:
            raise StoreUnavailableError(str(self._loss))
        packed = pack(commands)
        size = sum(map(len, packed))
        if self._in_flight_bytes + size > self._max_in_flight_bytes:
            raise StoreUnavailableError(
                f"{self._in_flight_bytes} bytes are in flight, and {size} more are too many"
            )
        loop = self._loop
        deadline = loop.time() + timeout_s
        trip = Trip(loop.create_future(), len(packed), size, deadline)
        self._trips.append(trip)
        self._in_flight_bytes += size
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent += packed
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return trip

    def abandon(self, reason: str) -> None:
        """Fail all trips in flight and close the socket without waiting for the server."""
        self._lose(StoreUnavailableError(reason))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Give it up, and return when the socket is closed."""
        self.abandon("closed")
        if self._transport is not None:
            # uvloop never tells a protocol whose connecting was cancelled that it closed its socket.
            await asyncio.wait([self._closed], timeout=None if self.opened else _UNTOLD_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # which a stream's is

    def data_received(self, data: bytes) -> None:
        reader, trips = self._reader, self._trips
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _MORE:
                kind = reply.__class__
                if kind is hiredis.PushNotification and not self._is_confirmation(reply):
                    self._pushed(reply)
                    continue
                trip = trips[0]
                if kind is StoreReplyError:
                    trip.failed = True
                replies = trip.replies
                replies.append(reply)
                if len(replies) == trip.wanted:
                    trips.popleft()
                    self._in_flight_bytes -= trip.size
                    if not trip.done.done():
                        trip.done.set_result(replies)
        except StoreUnavailableError as exc:
            self.abandon(f"unreadable reply: {exc}")
        except IndexError:
            self.abandon("a reply to nothing that was asked")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(
            StoreUnavailableError(f"connection lost: {exc}" if exc else "the server closed the connection")
        )
        if not self._closed.done():
            self._closed.set_result(None)

    def _is_confirmation(self, push: Push) -> bool:
        """Whether it stands for the reply to SSUBSCRIBE: the one command that is answered by a push."""
        return bool(push[0] == b"ssubscribe")

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _set_alarm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = self._loop.call_at(when, self._on_alarm)

    def _on_alarm(self) -> None:
        """Fail the trips whose time is up. Their replies are still expected, and swallowed when they come."""
        now, nearest = self._loop.time(), math.inf
        self._alarm, self._alarm_at = None, math.inf
        for trip in self._trips:
            if trip.done.done():
                continue
            if trip.deadline <= now:
                trip.done.set_exception(StoreUnavailableError("no answer in time"))
            else:
                nearest = min(nearest, trip.deadline)
        if not self._trips:
            return
        given_up_at = self._trips[0].deadline + self._stall_s
        if given_up_at <= now:
            self.abandon("the server is silent")
            return
        self._set_alarm(max(min(nearest, given_up_at), now + _LOOK_AGAIN_S))

    def _lose(self, loss: StoreUnavailableError) -> None:
        if self._loss is not None:
            return
        self._loss = loss
        if self._alarm is not None:
            self._alarm.cancel()
        for trip in self._trips:
            if not trip.done.done():
                trip.done.set_exception(StoreUnavailableError(str(loss)))  # one each: tracebacks grow
        self._trips.clear()
        self._unsent = []
        if not self.lost.done():
            self.lost.set_result(loss)


async def connect_node(node: Node, where: RedisUrl) -> None:
    """Give it its socket, with TLS where the URL says so. Raises OSError."""
    loop = asyncio.get_running_loop()
    if where.path:
        await loop.create_unix_connection(lambda: node, where.path)
        node.opened = True
        return
    context = ssl.create_default_context(cafile=where.ca_file or None) if where.tls else None
    transport, _ = await loop.create_connection(lambda: node, where.host, where.port, ssl=context)
    node.opened = True
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # Linux; elsewhere the system's own times
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
