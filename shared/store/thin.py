"""The decide path's own Redis connection: hiredis for the wire, one socket, one future per trip.

A general client's trip of four commands costs several times as much, and trips are most of the decide path.
What is left out here (pools, pipelines as objects, response callbacks, retries) is what costs.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.commands import Command
from shared.store.connection import ConnectionOptions, Deliver, Reply
from shared.store.keeper import Keeper
from shared.store.node import Node, Push, Trip, connect_node
from shared.store.redis_url import RedisUrl
from shared.store.scripts import Script, Scripts, merge_retried, retry_commands

_log = structlog.get_logger(__name__)


class ThinConnection:
    """`RedisConnection` over one multiplexed socket at a time."""

    def __init__(self, where: RedisUrl, options: ConnectionOptions, scripts: Scripts) -> None:
        """Connects in the background; needs a running loop."""
        self._where = where
        self._options = options
        self._scripts = scripts
        self._loop = asyncio.get_running_loop()
        self._node: Node | None = None  # only while trips may be sent on it
        self._channels: dict[bytes, Deliver] = {}
        self._keeper = Keeper(self._session, str(where))

    @property
    def connected(self) -> bool:
        return self._node is not None and self._node.usable

    async def wait_connected(self, timeout_s: float) -> None:
        await self._keeper.wait_connected(timeout_s)

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self._keeper.on_reconnect(callback)

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        if not commands:
            return []
        if timeout_s is None:
            timeout_s = self._options.trip_s
        node = self._node
        if node is None:
            node, timeout_s = await self._first_node(timeout_s)
        trip = node.send(commands, timeout_s)
        replies = await trip.done
        if trip.failed:
            await self._run_lost_scripts(node, commands, trip)
        return replies

    def script(self, name: str) -> Script:
        script = self._scripts.named(name)
        if self._node is not None and self._node.usable:
            loading = self._node.send([script.load()], self._options.trip_s)
            loading.done.add_done_callback(_log_unloaded)
        return script

    async def listen(self, channel: str, deliver: Deliver) -> None:
        name = channel.encode()
        timeout_s = self._options.trip_s
        node = self._node
        if node is None:
            node, timeout_s = await self._first_node(timeout_s)
        self._channels[name] = deliver  # before the confirmation: messages may come with it
        try:
            (reply,) = await node.send([_subscription(name)], timeout_s).done
        except BaseException:
            self._channels.pop(name, None)
            raise
        if isinstance(reply, StoreReplyError):
            self._channels.pop(name, None)
            raise reply

    def blocking(self) -> "ThinConnection":
        return ThinConnection(self._where, self._options, self._scripts)

    async def close(self) -> None:
        await self._keeper.close()

    async def _first_node(self, timeout_s: float) -> tuple[Node, float]:
        """Waits for the first attempt, if it is not over yet: node and time left; later fails at once."""
        started = self._loop.time()
        await self._keeper.first_attempt(timeout_s)
        if self._node is None:
            raise self._keeper.unavailable()
        return self._node, timeout_s - (self._loop.time() - started)

    async def _run_lost_scripts(self, node: Node, commands: Sequence[Command], trip: Trip) -> None:
        lost = self._scripts.unknown_to_server(commands, trip.replies)
        if lost:
            left_s = trip.deadline - self._loop.time()
            retried = await node.send(retry_commands(commands, lost), left_s).done
            merge_retried(trip.replies, lost, retried)

    async def _session(self, established: Callable[[], None]) -> None:
        """Open a socket, prepare it, lend it to trips until it is lost; raises what ended it."""
        node = await self._open()
        try:
            self._node = node
            established()
            raise await node.lost
        finally:
            self._node = None
            await node.close()

    async def _open(self) -> Node:
        options = self._options
        node = Node(options.stall_s, options.max_in_flight_bytes, self._pushed)
        try:
            async with asyncio.timeout(options.connect_s):
                await connect_node(node, self._where)
                await self._prepare(node)
        except BaseException:
            await node.close()
            raise
        return node

    async def _prepare(self, node: Node) -> None:
        """Enter, load scripts and subscribe, all in one write, before the first trip."""
        entry, loads, channels = self._entry(), self._scripts.loads(), list(self._channels)
        commands = [*entry, *loads, *map(_subscription, channels)]
        replies = await node.send(commands, self._options.connect_s).done
        for reply in replies[: len(entry)]:
            if isinstance(reply, StoreReplyError):
                # A server that still reads its data is one to come back to, not one that refuses us.
                raise StoreUnavailableError(str(reply)) if str(reply).startswith("LOADING") else reply
        for reply in replies[len(entry) :]:
            if isinstance(reply, StoreReplyError):
                _log.error("script or channel refused", server=str(self._where), reason=str(reply))

    def _entry(self) -> list[Command]:
        where = self._where
        account = ("AUTH", where.username or "default", where.password) if where.password else ()
        hello: Command = ("HELLO", 3, *account, "SETNAME", self._options.name)
        # PING is what a server that is loading its data refuses.
        return [hello, *([("SELECT", where.database)] if where.database else []), ("PING",)]

    def _pushed(self, push: Push) -> None:
        if push[0] == b"smessage":
            deliver = self._channels.get(push[1])
            if deliver is not None:
                self._loop.call_soon(deliver, push[2])  # what it raises goes to the loop's handler
        elif push[0] == b"sunsubscribe":
            _log.warning("the server ended a subscription", server=str(self._where))


def _subscription(channel: bytes) -> Command:
    return ("SSUBSCRIBE", channel)


def _log_unloaded(loading: "asyncio.Future[list[Reply]]") -> None:
    """A script that is refused is a fault of ours; one that could not be sent is loaded when missed."""
    if not loading.cancelled() and loading.exception() is None:
        (reply,) = loading.result()
        if isinstance(reply, StoreReplyError):
            _log.error("script refused", reason=str(reply))
