"""Replies on their way back: one stream per gateway, read by one task, handed to the requests that wait."""

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from shared.errors import StoreError
from shared.protocol.decide import FallbackCode
from shared.scheduling.items import ItemReply, decode_reply
from shared.store.connection import RedisConnection
from shared.store.queue import DeadlineQueue

BLOCK_MS = 2_000
RETRY_S = 0.05

_log = structlog.get_logger(__name__)


class Waiter:
    """One request waiting for the replies to its queue items."""

    __slots__ = ("done", "dropped", "items", "replies")

    def __init__(self, items: Iterable[str]) -> None:
        self.items = set(items)  # still without a reply
        self.replies: list[ItemReply] = []
        self.dropped: list[tuple[str, FallbackCode]] = []  # items that the queue gave up, with its code
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, item: str) -> None:
        """Count one item as answered."""
        self.items.discard(item)
        if not self.items and not self.done.done():
            self.done.set_result(None)


class ReplyRouter:
    """Reads this gateway's reply stream and resolves waiters."""

    def __init__(self, connection: RedisConnection, queue: DeadlineQueue, gateway: str) -> None:
        """`connection` is this router's own: its reads block."""
        self._connection = connection
        self._queue = queue
        self._gateway = gateway
        self._waiters: dict[str, Waiter] = {}

    def expect(self, waiter: Waiter) -> None:
        """Deliver replies to the waiter's items from now on; call before the items are admitted."""
        for item in waiter.items:
            self._waiters[item] = waiter

    def forget(self, items: Iterable[str]) -> None:
        """Deliver nothing more for these items."""
        for item in items:
            self._waiters.pop(item, None)

    async def run(self) -> None:
        """Read until cancelled; a lost connection is waited out, and nothing on the stream is missed."""
        after = "0-0"
        while True:
            command = self._queue.replies_command(self._gateway, after, BLOCK_MS)
            try:
                replies = await self._connection.trip([command], timeout_s=BLOCK_MS / 1000 + 2)
                entries = self._queue.parse_replies(replies[0])
            except StoreError:
                await asyncio.sleep(RETRY_S)
                continue
            for entry in entries:
                after = entry.entry
                self._deliver(entry.item, entry.reply, entry.code)

    def _deliver(self, item: str, reply: bytes | None, code: FallbackCode | None) -> None:
        waiter = self._waiters.pop(item, None)
        if waiter is None:
            return
        if reply is not None:
            try:
                waiter.replies.append(decode_reply(reply))
            except msgspec.MsgspecError:
                _log.exception("unreadable reply", item=item)
        else:
            waiter.dropped.append((item, code or "unavailable"))
        waiter.settle(item)
