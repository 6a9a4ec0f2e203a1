"""The way onto the decision-log stream that survives a Redis which is away for a while."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

import structlog

from shared import metric_defs
from shared.errors import StoreError
from shared.metrics import Metrics
from shared.store.connection import Command, RedisConnection
from shared.store.replies import require_done

MAX_HELD_BYTES = 64 << 20  # about a hundred thousand entries: minutes of a busy process
FLUSH_ENTRIES = 200
RETRY_S = 0.1
WRITE_S = 0.2  # a reply to a game waits for its log entry no longer than this

_log = structlog.get_logger(__name__)


class LogOutbox:
    """Puts entries on the stream: inside a caller's own trip, or later when Redis did not take them.

    An entry whose trip failed may have been written all the same; rows have ids, so a repeat is harmless.
    """

    def __init__(self, connection: RedisConnection, stream: str, max_entries: int, metrics: Metrics) -> None:
        """`stream` is trimmed to about `max_entries`: the log writer spills to disk long before."""
        self._connection = connection
        self._stream = stream
        self._max_entries = max_entries
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._wake = asyncio.Event()
        self._entries_gauge = metrics.gauge(metric_defs.OUTBOX_ENTRIES)
        self._dropped = metrics.counter(metric_defs.OUTBOX_DROPPED)

    def command(self, encoded: bytes) -> Command:
        """The command that appends one encoded entry, for a caller's own trip."""
        return ("XADD", self._stream, "MAXLEN", "~", self._max_entries, "*", "e", encoded)

    async def write(self, encoded: bytes) -> None:
        """Append one encoded entry now, or hold it until Redis takes it.

        Never raises and never waits for long: while entries are held, Redis is away, and this one joins them.
        """
        if self._held or not await self._sent([encoded], WRITE_S):
            self.hold(encoded)

    def hold(self, encoded: bytes) -> None:
        """Keep an encoded entry until Redis takes it; the oldest go first when there is no more room."""
        self._held.append(encoded)
        self._held_bytes += len(encoded)
        while self._held_bytes > MAX_HELD_BYTES:
            self._held_bytes -= len(self._held.popleft())
            self._dropped.inc()
            _log.error("decision log entry lost: Redis has been away for too long")
        self._entries_gauge.set(len(self._held))
        self._wake.set()

    async def run(self) -> None:
        """Send what is held whenever Redis is there, until cancelled."""
        while True:
            await self._wake.wait()
            if await self.flush():
                self._wake.clear()
            else:
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """Send what is held; whether all of it went."""
        while self._held:
            batch = list(islice(self._held, FLUSH_ENTRIES))
            if not await self._sent(batch):
                return False
            for encoded in batch:
                # The oldest may have been dropped meanwhile to make room.
                if self._held and self._held[0] is encoded:
                    self._held_bytes -= len(self._held.popleft())
            self._entries_gauge.set(len(self._held))
        return True

    async def drain(self, seconds: float) -> None:
        """Send what is held before the process ends, for at most `seconds`; say aloud what is lost then."""
        until_s = asyncio.get_running_loop().time() + seconds
        while not await self.flush():
            if asyncio.get_running_loop().time() >= until_s:
                self._dropped.inc(len(self._held))
                _log.error("decision log entries lost: Redis is away at the end", entries=len(self._held))
                return
            await asyncio.sleep(RETRY_S)

    async def _sent(self, batch: Sequence[bytes], timeout_s: float | None = None) -> bool:
        """Whether Redis has all of them."""
        try:
            commands = [self.command(encoded) for encoded in batch]
            require_done(await self._connection.trip(commands, timeout_s=timeout_s))
        except StoreError as error:
            _log.debug("the decision log stream takes nothing", error=str(error))
            return False
        return True
