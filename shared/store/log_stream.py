"""The decision-log stream as its reader sees it: a consumer group, emptied as it is read."""

from collections.abc import Sequence

import structlog

from shared.errors import StoreReplyError
from shared.store.connection import Command, RedisConnection, Reply
from shared.store.keys import QueueKeys
from shared.store.queue import QueueBounds
from shared.store.replies import require_done

GROUP = "log-writer"
REPLY_TIMEOUT_S = 3.0
LIFE_MS = QueueBounds().log_ttl_ms  # renewed by writers of answers and by us: gateways' own entries come bare

_log = structlog.get_logger(__name__)

StreamEntry = tuple[bytes, bytes | None]  # id and payload; None: deleted before it was read


class LogStream:
    """One consumer of one shard's stream. Its connection is its own: reading blocks."""

    def __init__(self, connection: RedisConnection, shard: int, consumer: str) -> None:
        self._connection = connection
        self._key = QueueKeys(shard).log
        self._consumer = consumer

    async def read_new(self, count: int, block_ms: int = 0) -> list[StreamEntry]:
        """Entries never delivered to anyone, waiting up to `block_ms` (0: not at all) for the first."""
        return await self._read(count, block_ms, b">")

    async def read_pending(self, count: int) -> list[StreamEntry]:
        """The oldest entries that this consumer was given and has not removed."""
        return await self._read(count, 0, b"0")

    async def adopt(self, min_idle_ms: int, count: int = 1000) -> int:
        """Make other consumers' entries ours that were delivered `min_idle_ms` ago and never removed.

        Returns how many; `read_pending` gives them out.
        """
        claim = ("XAUTOCLAIM", self._key, GROUP, self._consumer, min_idle_ms, "0", "COUNT", count, "JUSTID")
        reply = await self._ask_group(claim)
        return len(reply[1]) if isinstance(reply, list) else 0

    async def remove(self, ids: Sequence[bytes]) -> int:
        """Entries are kept elsewhere: delete them and forget their delivery. Returns the stream's length.

        Deleted first: after a crash between the two a pending entry without payload is left, which is removed
        again, where an entry acknowledged and not deleted would stay for ever.
        """
        commands: list[Command] = [
            ("XDEL", self._key, *ids),
            ("XACK", self._key, GROUP, *ids),
            ("XLEN", self._key),
            ("PEXPIRE", self._key, LIFE_MS),
        ]
        replies = await self._connection.trip(commands, timeout_s=REPLY_TIMEOUT_S)
        require_done(replies)
        length = replies[2]
        return length if isinstance(length, int) else 0

    async def _read(self, count: int, block_ms: int, start: bytes) -> list[StreamEntry]:
        block = ("BLOCK", block_ms) if block_ms else ()
        command = (
            "XREADGROUP",
            "GROUP",
            GROUP,
            self._consumer,
            "COUNT",
            count,
            *block,
            "STREAMS",
            self._key,
            start,
        )
        return _entries(await self._ask_group(command, block_ms / 1000))

    async def _ask_group(self, command: Command, block_s: float = 0.0) -> Reply:
        """The reply; None when the group had to be made first, as on a new or an emptied Redis."""
        try:
            return await self._ask(command, REPLY_TIMEOUT_S + block_s)
        except StoreReplyError as exc:
            if not str(exc).startswith("NOGROUP"):
                raise
        try:
            await self._ask(("XGROUP", "CREATE", self._key, GROUP, "0", "MKSTREAM"), REPLY_TIMEOUT_S)
        except StoreReplyError as exc:
            if not str(exc).startswith("BUSYGROUP"):  # another reader made it meanwhile
                raise
        await self._ask(("PEXPIRE", self._key, LIFE_MS), REPLY_TIMEOUT_S)
        _log.info("made the log stream's consumer group")
        return None

    async def _ask(self, command: Command, timeout_s: float) -> Reply:
        [reply] = await self._connection.trip([command], timeout_s=timeout_s)
        if isinstance(reply, StoreReplyError):
            raise reply
        return reply


def _entries(reply: Reply) -> list[StreamEntry]:
    """Out of {stream: [[id, [field, value]], …]} (RESP3) or its list of pairs (RESP2)."""
    pairs = list(reply.items()) if isinstance(reply, dict) else reply
    if not isinstance(pairs, list) or not pairs:
        return []
    return [(entry_id, fields[1] if fields else None) for entry_id, fields in pairs[0][1]]
