"""The log writer between a real stream and a real database: nothing lost, nothing twice, whatever dies."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from scheduler.log_writer import LogWriter, WriterLimits
from scheduler.spill import MIN_FREE_BYTES, Spill
from shared import metric_defs
from shared.decision_log import LogEntry, encode_entry
from shared.errors import StoreUnavailableError
from shared.metrics import Metrics
from shared.store.connection import RedisConnection, open_connection
from shared.store.keys import QueueKeys
from shared.store.log_rows import LogRows
from shared.store.log_stream import GROUP, LogStream
from shared.store.log_tables import LogTables
from shared.store.postgres import Postgres
from tests.log_entries import decision_entry, fallback_entry, report_entry, static_entry
from tests.postgres import PostgresServer
from tests.waiting import eventually

LOG = QueueKeys(0).log
QUICK = WriterLimits(linger_s=0.01, retry_s=0.05, max_retry_s=0.2, write_timeout_s=1.0, block_ms=2_000)


class Bench:
    """A stream, a database and a spill folder, with what a test asks about them."""

    def __init__(self, connection: RedisConnection, database: str, folder: Path) -> None:
        self.connection = connection
        self.database = database
        self.folder = folder
        self.metrics = Metrics()

    async def put(self, *entries: LogEntry | bytes) -> None:
        raws = [entry if isinstance(entry, bytes) else encode_entry(entry) for entry in entries]
        replies = await self.connection.trip([("XADD", LOG, "*", "e", raw) for raw in raws], timeout_s=5)
        assert all(isinstance(reply, bytes) for reply in replies)

    async def stream_is_empty(self) -> bool:
        length, pending = await self.connection.trip([("XLEN", LOG), ("XPENDING", LOG, GROUP)], timeout_s=5)
        return length == 0 and isinstance(pending, list) and pending[0] == 0

    async def is_held(self) -> bool:
        """Whether the writer has read everything and let go of nothing."""
        [pending] = await self.connection.trip([("XPENDING", LOG, GROUP)], timeout_s=5)
        return isinstance(pending, list) and pending[0] == await self._length() > 0

    async def _length(self) -> int:
        [length] = await self.connection.trip([("XLEN", LOG)], timeout_s=5)
        assert isinstance(length, int)
        return length

    async def ids(self) -> list[str]:
        postgres = await Postgres.open(self.database)
        try:
            return [
                row[0] for row in await postgres.fetch("SELECT id FROM decisions ORDER BY length(id), id")
            ]
        finally:
            await postgres.close()

    async def count(self, table: str) -> int:
        postgres = await Postgres.open(self.database)
        try:
            return int((await postgres.fetch(f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608
        finally:
            await postgres.close()

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.seg"))

    @asynccontextmanager
    async def writer(
        self,
        limits: WriterLimits = QUICK,
        stream: type[LogStream] = LogStream,
        min_free_bytes: int = MIN_FREE_BYTES,
        folder: Path | None = None,
    ) -> AsyncIterator[LogWriter]:
        """A running writer; stopped in order at the end."""
        spill = Spill(folder or self.folder, min_free_bytes=min_free_bytes)
        postgres = await Postgres.open(self.database, max_connections=1)
        reader = self.connection.blocking()
        await reader.wait_connected(5)
        writer = LogWriter(stream(reader, 0, spill.owner), LogTables(postgres), spill, self.metrics, limits)
        stop = asyncio.Event()
        running = asyncio.create_task(writer.run(stop))
        try:
            yield writer
        finally:
            stop.set()
            await running
            await reader.close()
            await postgres.close()
            spill.close()


@pytest.fixture
def bench(store_connection: RedisConnection, database: str, tmp_path: Path) -> Bench:
    return Bench(store_connection, database, tmp_path / "spill")


@pytest.fixture
def own_bench(store_connection: RedisConnection, own_postgres: PostgresServer, tmp_path: Path) -> Bench:
    return Bench(store_connection, own_postgres.url(), tmp_path / "spill")


def numbered(count: int, rows: int = 1) -> tuple[list[LogEntry], list[str]]:
    """`count` entries of `rows` decisions each, and all their ids in order."""
    names = [[f"d_{entry * rows + row}" for row in range(rows)] for entry in range(count)]
    return [decision_entry(*one) for one in names], [name for one in names for name in one]


async def test_entries_move_from_the_stream_into_their_tables(bench: Bench) -> None:
    async with bench.writer() as writer:
        await bench.put(decision_entry("d_1", "d_2"), fallback_entry("f_1"), report_entry(decision_id="d_1"))
        await bench.put(static_entry("manifest"), static_entry("contexts"))
        await eventually(bench.stream_is_empty)
        assert writer.ready()
    assert await bench.ids() == ["d_1", "d_2", "f_1"]
    assert [await bench.count(table) for table in ("reports", "manifests", "static_texts")] == [1, 1, 1]
    written = bench.metrics.counter(metric_defs.LOG_WRITTEN_ROWS, "decisions")
    assert written._value.get() == 3


async def test_a_backlog_is_read_in_large_batches(bench: Bench) -> None:
    entries, ids = numbered(700, rows=16)
    await bench.put(*entries)
    async with bench.writer():
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ids


async def test_an_idle_writer_stops_at_once(bench: Bench) -> None:
    limits = WriterLimits(block_ms=60_000)
    async with asyncio.timeout(5):
        async with bench.writer(limits):
            await bench.put(decision_entry("d_1"))
            await eventually(bench.stream_is_empty)


async def test_what_is_no_entry_is_set_aside_and_blocks_nothing(bench: Bench) -> None:
    await bench.put(b"", b"nonsense", decision_entry("d_1"), encode_entry(decision_entry("d_2"))[:40])
    await bench.connection.trip([("XADD", LOG, "*", "other", "field")], timeout_s=5)
    async with bench.writer():
        await bench.put(decision_entry("d_3"))
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ["d_1", "d_3"]
    assert await bench.count("dead_letters") == 4


async def test_one_row_that_cannot_be_stored_costs_its_entry_alone(bench: Bench) -> None:
    entries, ids = numbered(40)
    too_long_for_an_index = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(3_000))
    await bench.put(*entries[:25], decision_entry(too_long_for_an_index), *entries[25:])
    async with bench.writer():
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ids
    assert await bench.count("dead_letters") == 1


async def test_a_crash_between_commit_and_acknowledgement_stores_once(bench: Bench) -> None:
    class Deaf(LogStream):
        """Its acknowledgements never arrive."""

        async def remove(self, ids: Sequence[bytes]) -> int:
            raise StoreUnavailableError("cut")

    entries, ids = numbered(30)
    await bench.put(*entries)

    async def stored() -> bool:
        return await bench.count("decisions") == len(ids)

    async with bench.writer(stream=Deaf):
        await eventually(stored)
    assert not await bench.stream_is_empty()
    async with bench.writer(WriterLimits(read_count=8)):
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ids


async def test_an_acknowledgement_that_was_lost_is_made_up_for(bench: Bench) -> None:
    class DeafOnce(LogStream):
        """Its first acknowledgement never arrives."""

        heard = 0

        async def remove(self, ids: Sequence[bytes]) -> int:
            self.heard += 1
            if self.heard == 1:
                raise StoreUnavailableError("cut")
            return await super().remove(ids)

    entries, ids = numbered(30)
    await bench.put(*entries)
    async with bench.writer(stream=DeafOnce):
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ids


async def test_entries_of_a_dead_writer_are_adopted(bench: Bench, tmp_path: Path) -> None:
    await bench.put(decision_entry("d_1"), decision_entry("d_2"))
    dead = LogStream(bench.connection, 0, "dead")
    assert await dead.read_new(10) == []  # makes the group
    assert len(await dead.read_new(10)) == 2
    async with bench.writer(WriterLimits(linger_s=0, adopt_idle_ms=100, adopt_every_s=0.1, block_ms=50)):
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ["d_1", "d_2"]


async def test_entries_of_a_writer_at_work_are_left_to_it(bench: Bench) -> None:
    await bench.put(decision_entry("d_1"))
    other = LogStream(bench.connection, 0, "other")
    await other.read_new(10)
    [(entry_id, _)] = await other.read_new(10)
    async with bench.writer(WriterLimits(linger_s=0, adopt_every_s=0.05, block_ms=20)):
        await bench.put(decision_entry("d_2"))
        await eventually(lambda: _is(bench.ids(), ["d_2"]))
    assert await other.remove([entry_id]) == 0
    assert await bench.ids() == ["d_2"]


async def _is(actual: Awaitable[object], expected: object) -> bool:
    return await actual == expected


async def test_an_entry_trimmed_before_it_was_kept_is_passed_over(bench: Bench) -> None:
    async with bench.writer() as writer:
        await eventually(lambda: _ready(writer))
        me = writer._spill.owner
    lost = LogStream(bench.connection, 0, me)
    await bench.put(decision_entry("d_1"), decision_entry("d_2"))
    [(first, _), _] = await lost.read_new(10)
    await bench.connection.trip([("XDEL", LOG, first)], timeout_s=5)
    async with bench.writer():
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ["d_2"]


async def _ready(writer: LogWriter) -> bool:
    return writer.ready()


async def test_a_database_that_is_not_migrated_yet_is_waited_for(
    bench: Bench, postgres_server: PostgresServer, empty_database: str
) -> None:
    from shared.store.migrations import migrate

    bench.database = empty_database
    await bench.put(decision_entry("d_1"))
    async with bench.writer() as writer:
        await eventually(bench.stream_is_empty)
        assert bench.segments()
        assert writer.ready()
        await migrate(empty_database)
        await eventually(lambda: _is(bench.count("decisions"), 1))
        await eventually(lambda: _spill_is_empty(bench))
    assert await bench.count("dead_letters") == 0


async def _spill_is_empty(bench: Bench) -> bool:
    return not bench.segments()


async def test_a_schema_in_trouble_is_no_fault_of_the_entry(
    bench: Bench, postgres_server: PostgresServer
) -> None:
    name = bench.database.split("/")[3].split("?")[0]
    postgres_server.execute("ALTER TABLE reports RENAME TO elsewhere", name)
    await bench.put(report_entry(), decision_entry("d_1"))
    async with bench.writer():
        await eventually(bench.stream_is_empty)
        assert bench.segments()
        postgres_server.execute("ALTER TABLE elsewhere RENAME TO reports", name)
        await eventually(lambda: _spill_is_empty(bench))
    assert [await bench.count(table) for table in ("reports", "decisions", "dead_letters")] == [1, 1, 0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_postgres_away_goes_to_disk_and_comes_back_in_full(
    own_bench: Bench, own_postgres: PostgresServer, number: signal.Signals
) -> None:
    entries, ids = numbered(300)
    async with own_bench.writer() as writer:
        await own_bench.put(*entries[:100])
        await eventually(own_bench.stream_is_empty)
        await asyncio.to_thread(own_postgres.stop, number)
        for start in range(100, 200, 10):
            await own_bench.put(*entries[start : start + 10], entries[start])
            await eventually(own_bench.stream_is_empty)
        assert own_bench.segments()
        assert writer.ready()
        await asyncio.to_thread(own_postgres.start)
        await own_bench.put(*entries[200:])
        await eventually(lambda: _is(own_bench.ids(), ids))
        await eventually(lambda: _spill_is_empty(own_bench))
        await eventually(own_bench.stream_is_empty)


async def test_postgres_frozen_goes_to_disk(own_bench: Bench, own_postgres: PostgresServer) -> None:
    entries, ids = numbered(40)
    limits = WriterLimits(linger_s=0.01, retry_s=0.05, max_retry_s=0.2, write_timeout_s=1.0, block_ms=60_000)
    async with own_bench.writer(limits):
        await own_bench.put(*entries[:20])
        await eventually(own_bench.stream_is_empty)
        own_postgres.freeze()
        await own_bench.put(*entries[20:])
        await eventually(own_bench.stream_is_empty)
        assert own_bench.segments()
        own_postgres.thaw()
        await eventually(lambda: _is(own_bench.ids(), ids))
        await eventually(lambda: _spill_is_empty(own_bench))


async def test_what_an_earlier_life_spilled_is_brought_home(bench: Bench) -> None:
    spill = Spill(bench.folder)
    spill.append([encode_entry(decision_entry("d_1", "d_2")), b"nonsense"])
    spill.append([encode_entry(decision_entry("d_2", "d_3"))])
    spill.close()
    async with bench.writer():
        await eventually(lambda: _spill_is_empty(bench))
    assert await bench.ids() == ["d_1", "d_2", "d_3"]
    assert await bench.count("dead_letters") == 1


async def test_with_neither_postgres_nor_disk_the_stream_holds_the_log(
    own_bench: Bench, own_postgres: PostgresServer
) -> None:
    await asyncio.to_thread(own_postgres.stop)
    await own_bench.put(decision_entry("d_1"))
    async with own_bench.writer(min_free_bytes=1 << 60) as writer:
        await eventually(own_bench.is_held)
        await eventually(lambda: _not_ready(writer))
        await own_bench.put(decision_entry("d_2"))
        await asyncio.to_thread(own_postgres.start)
        await eventually(own_bench.stream_is_empty)
        assert writer.ready()
    assert await own_bench.ids() == ["d_1", "d_2"]


async def test_a_writer_that_can_keep_nothing_still_stops(
    own_bench: Bench, own_postgres: PostgresServer
) -> None:
    await asyncio.to_thread(own_postgres.stop)
    await own_bench.put(decision_entry("d_1"))
    async with asyncio.timeout(10):
        async with own_bench.writer(min_free_bytes=1 << 60) as writer:
            await eventually(own_bench.is_held)
            await eventually(lambda: _not_ready(writer))
    assert not await own_bench.stream_is_empty()


async def _not_ready(writer: LogWriter) -> bool:
    return not writer.ready()


async def test_a_redis_that_was_emptied_is_read_on(bench: Bench) -> None:
    async with bench.writer():
        await bench.put(decision_entry("d_1"))
        await eventually(bench.stream_is_empty)
        await bench.connection.trip([("FLUSHALL",)], timeout_s=5)
        await bench.put(decision_entry("d_2"))
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ["d_1", "d_2"]


async def test_a_redis_that_was_restarted_is_read_on(
    own_valkey: EmbeddedValkey, database: str, tmp_path: Path
) -> None:
    connection = open_connection(own_valkey.url)
    await connection.wait_connected(5)
    bench = Bench(connection, database, tmp_path / "spill")
    async with bench.writer() as writer:
        await bench.put(decision_entry("d_1"))
        await eventually(bench.stream_is_empty)
        await own_valkey.stop()
        await eventually(lambda: _not_ready(writer))
        await own_valkey.start()
        await eventually(lambda: _ready(writer))
        await eventually(lambda: _connected(connection))
        await bench.put(decision_entry("d_2"))
        await eventually(bench.stream_is_empty)
    assert await bench.ids() == ["d_1", "d_2"]
    await connection.close()


async def _connected(connection: RedisConnection) -> bool:
    return connection.connected


async def test_batches_keep_their_bounds(bench: Bench) -> None:
    sizes: list[int] = []

    class Watched(LogTables):
        async def write(self, rows: LogRows, *, timeout_s: float) -> dict[str, int]:
            sizes.append(len(rows))
            return await super().write(rows, timeout_s=timeout_s)

    entries, _ = numbered(200, rows=4)
    await bench.put(*entries)
    spill = Spill(bench.folder)
    postgres = await Postgres.open(bench.database)
    reader = bench.connection.blocking()
    await reader.wait_connected(5)
    limits = WriterLimits(batch_rows=100, read_count=10, linger_s=0.01)
    writer = LogWriter(LogStream(reader, 0, spill.owner), Watched(postgres), spill, bench.metrics, limits)
    stop = asyncio.Event()
    running = asyncio.create_task(writer.run(stop))
    await eventually(bench.stream_is_empty)
    stop.set()
    await running
    assert sum(sizes) == 800
    assert max(sizes) <= 100 + 10 * 4
    await reader.close()
    await postgres.close()
    spill.close()
