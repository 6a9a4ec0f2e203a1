"""The log writer: moves the decision log from its Redis stream to Postgres, or to disk while that is away.

An entry leaves the stream only after the commit or the fsync that keeps it; what is delivered twice is stored
once. One batch at a time is in memory: when neither Postgres nor the disk takes it, the stream waits.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from scheduler.spill import Spill, SpillFullError
from shared import metric_defs
from shared.errors import StoreError, StoreReplyError
from shared.metrics import Metrics
from shared.store.log_rows import LogRows
from shared.store.log_stream import LogStream, StreamEntry
from shared.store.log_tables import LogTables, is_data_error

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """How much at once and how long. Times in seconds unless named otherwise."""

    batch_rows: int = 5_000
    batch_bytes: int = 4 << 20
    read_count: int = 64  # entries a read: an entry of 256 rows may have a megabyte
    linger_s: float = 0.2  # how long a batch that is not full waits for more
    block_ms: int = 5_000  # how long an idle read sleeps
    write_timeout_s: float = 6.0
    retry_s: float = 0.5  # the first wait for a server that is away; doubles
    max_retry_s: float = 5.0
    adopt_every_s: float = 10.0
    adopt_idle_ms: int = 30_000  # longer than any live writer keeps a batch
    loud_stream_length: int = 100_000  # entries; beyond it the log is in danger of its bound


@dataclass(slots=True)
class Batch:
    """Entries on their way, and their rows."""

    ids: list[bytes] = field(default_factory=list)
    raws: list[bytes] = field(default_factory=list)
    rows: LogRows = field(default_factory=LogRows)
    size_bytes: int = 0

    def add(self, raw: bytes) -> None:
        self.raws.append(raw)
        self.rows.add(raw)
        self.size_bytes += len(raw)


class Retry:
    """Waiting times for something that is away: doubling up to a bound, reset by success."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s
        self.due_at: float | None = None  # the loop's time; None: it is not away

    def failed(self, now: float) -> None:
        self.due_at = now + self._next_s
        self._next_s = min(self._max_s, self._next_s * 2)

    def succeeded(self) -> None:
        self.due_at = None
        self._next_s = self._first_s

    def wait_s(self, now: float) -> float:
        """Until the next attempt is due; 0 when it is."""
        return max(0.0, self.due_at - now) if self.due_at is not None else 0.0


class LogWriter:
    """One consumer of one stream."""

    def __init__(
        self,
        stream: LogStream,
        tables: LogTables,
        spill: Spill,
        metrics: Metrics,
        limits: WriterLimits | None = None,
    ) -> None:
        self._stream = stream
        self._tables = tables
        self._spill = spill
        self._metrics = metrics
        self._limits = limits or WriterLimits()
        self._look_back = True  # entries were delivered to us that we may not have removed
        self._redis = Retry(self._limits.retry_s, self._limits.max_retry_s)
        self._postgres = Retry(self._limits.retry_s, self._limits.max_retry_s)
        self._adopt_at = 0.0
        self._started = False
        self._blocked = False

    def ready(self) -> bool:
        """Whether entries come off the stream: Redis answers, and Postgres or the disk keeps them."""
        return self._started and self._redis.due_at is None and not self._blocked

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; the batch in hand is kept first."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                try:
                    await self._turn(stopping)
                except StoreError as exc:
                    self._look_back = True  # a reply was lost: what it brought is pending
                    self._redis.failed(_now())
                    _log.warning("the log stream does not answer", error=str(exc))
                    await _first(stopping, asyncio.sleep(self._redis.wait_s(_now())))
        finally:
            stopping.cancel()

    async def _turn(self, stopping: "asyncio.Task[bool]") -> None:
        """Read and keep one batch, then replay one piece of the spill."""
        await self._adopt()
        batch = await self._gather(stopping)
        self._redis.succeeded()
        self._started = True
        if batch.ids:
            await self._keep(batch, stopping)
        if not self._spill.is_empty and self._postgres.wait_s(_now()) == 0:
            await self._replay()

    async def _adopt(self) -> None:
        if _now() >= self._adopt_at:
            if await self._stream.adopt(self._limits.adopt_idle_ms):
                self._look_back = True
            self._adopt_at = _now() + self._limits.adopt_every_s

    async def _gather(self, stopping: "asyncio.Task[bool]") -> Batch:
        """The next batch; empty when there is nothing or it is time to stop."""
        batch = Batch()
        count = self._limits.read_count
        if self._look_back:
            entries = await self._stream.read_pending(count)
            self._look_back = bool(entries)
            _fill(batch, entries)
        if not batch.ids:
            entries = await _first(stopping, self._stream.read_new(count, self._block_ms())) or []
            if 0 < len(entries) < count:
                _fill(batch, entries)
                await _first(stopping, asyncio.sleep(self._limits.linger_s))
                entries = await self._stream.read_new(count)
            _fill(batch, entries)
            while len(entries) == count and not self._is_full(batch):
                entries = await self._stream.read_new(count)
                _fill(batch, entries)
        return batch

    def _block_ms(self) -> int:
        """Idle reads sleep long, unless the spill waits for Postgres or Redis has yet to answer."""
        if not self._started or self._redis.due_at is not None:
            return 1
        if self._spill.is_empty:
            return self._limits.block_ms
        return max(1, min(self._limits.block_ms, int(self._postgres.wait_s(_now()) * 1000)))

    def _is_full(self, batch: Batch) -> bool:
        return len(batch.rows) >= self._limits.batch_rows or batch.size_bytes >= self._limits.batch_bytes

    async def _keep(self, batch: Batch, stopping: "asyncio.Task[bool]") -> None:
        """Bring a batch to Postgres or to disk, then take it off the stream; wait while neither takes it."""
        while batch.raws and not await self._store(batch) and not await self._put_aside(batch):
            self._blocked = True
            await _first(stopping, asyncio.sleep(self._limits.max_retry_s))
            if stopping.done():
                return  # it stays pending on the stream
        self._blocked = False
        length = await self._stream.remove(batch.ids)
        self._metrics.gauge(metric_defs.LOG_LAG_ENTRIES).set(length)
        if length > self._limits.loud_stream_length:
            _log.error("the log stream is long and will drop entries at its bound", entries=length)

    async def _store(self, batch: Batch) -> bool:
        """Whether Postgres has committed the batch; asks nothing while the server is believed away."""
        was_away = self._postgres.due_at is not None
        if self._postgres.wait_s(_now()) > 0:
            return False
        try:
            if was_away:
                await self._tables.ping()
            await self._write(batch.raws, batch.rows)
        except StoreError as exc:
            self._postgres.failed(_now())
            _log.error("postgres does not take the log, spilling", error=str(exc))
            return False
        self._postgres.succeeded()
        if was_away:
            _log.warning("postgres takes the log again", spilled_bytes=self._spill.size_bytes)
        return True

    async def _write(self, raws: Sequence[bytes], rows: LogRows) -> None:
        """Write entries; when one of them cannot be stored, halve until it alone becomes a dead letter."""
        for _, error, _ in rows.dead_letters:
            _log.error("a log entry cannot be stored, kept in dead_letters", error=error)
        try:
            written = await self._tables.write(rows, timeout_s=self._limits.write_timeout_s)
        except StoreReplyError as exc:
            if not is_data_error(exc) or (rows.dead_letters and len(raws) == 1):
                raise
            await self._write_apart(raws, exc)
            return
        for table, count in written.items():
            self._metrics.counter(metric_defs.LOG_WRITTEN_ROWS, table).inc(count)

    async def _write_apart(self, raws: Sequence[bytes], error: StoreReplyError) -> None:
        if len(raws) == 1:
            rows = LogRows()
            rows.add_dead_letter(raws[0], str(error))
            await self._write(raws, rows)
            return
        middle = len(raws) // 2
        for half in (raws[:middle], raws[middle:]):
            await self._write(half, LogRows.of(half))

    async def _put_aside(self, batch: Batch) -> bool:
        """Whether the batch is on disk."""
        try:
            await asyncio.to_thread(self._spill.append, batch.raws)
        except SpillFullError as exc:
            _log.error(
                "neither postgres nor the spill takes the log: the stream has to hold it", error=str(exc)
            )
            return False
        self._metrics.gauge(metric_defs.LOG_SPILLED_BYTES).set(self._spill.size_bytes)
        return True

    async def _replay(self) -> None:
        """Bring the oldest piece of the spill to Postgres."""
        batch = Batch()
        for raw in await asyncio.to_thread(self._spill.read, self._limits.batch_bytes):
            batch.add(raw)
        if batch.raws and await self._store(batch):
            await asyncio.to_thread(self._spill.commit)
        self._metrics.gauge(metric_defs.LOG_SPILLED_BYTES).set(self._spill.size_bytes)


def _fill(batch: Batch, entries: Sequence[StreamEntry]) -> None:
    for entry_id, raw in entries:
        batch.ids.append(entry_id)
        if raw is None:
            _log.error("a log entry was dropped from the stream before it was kept", entry=entry_id.decode())
        else:
            batch.add(raw)


async def _first(stopping: "asyncio.Task[bool]", work: Awaitable[_T]) -> _T | None:
    """What `work` returns, or None when it is time to stop before: then it is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    return None if task.cancelled() else task.result()


def _now() -> float:
    return asyncio.get_running_loop().time()
