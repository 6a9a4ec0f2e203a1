"""Daily partitions of the decision log: made on demand and ahead, dropped when they expire."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date

import pytest

from shared.decision_log import encode_entry
from shared.errors import StoreReplyError
from shared.store.log_rows import LogRows
from shared.store.log_tables import LogTables
from shared.store.postgres import Postgres
from tests.log_entries import AT_MS, decision_entry, report_entry

DAY_MS = 86_400_000
TODAY = date(2026, 3, 1)
PARTITIONS = (
    "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhparent "
    "WHERE relkind = 'p' ORDER BY 1"
)


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[Postgres]:
    opened = await Postgres.open(database)
    yield opened
    await opened.close()


async def partitions(postgres: Postgres) -> list[str]:
    return [row[0] for row in await postgres.fetch(PARTITIONS)]


def rows_at(*times_ms: int) -> LogRows:
    return LogRows.of([encode_entry(decision_entry(f"d_{at_ms}", at_ms=at_ms)) for at_ms in times_ms])


async def test_a_batch_makes_the_partitions_of_its_days(postgres: Postgres) -> None:
    await LogTables(postgres).write(rows_at(AT_MS - 3 * DAY_MS, AT_MS, AT_MS + DAY_MS), timeout_s=5)
    assert [name for name in await partitions(postgres) if name.startswith("decisions")] == [
        "decisions_20260226",
        "decisions_20260301",
        "decisions_20260302",
    ]


async def test_a_day_ends_at_midnight_utc(postgres: Postgres) -> None:
    midnight_ms = AT_MS + DAY_MS // 2
    await LogTables(postgres).write(rows_at(midnight_ms - 1, midnight_ms), timeout_s=5)
    where = await postgres.fetch("SELECT tableoid::regclass::text, id FROM decisions ORDER BY at")
    assert [tuple(row) for row in where] == [
        ("decisions_20260301", f"d_{midnight_ms - 1}"),
        ("decisions_20260302", f"d_{midnight_ms}"),
    ]


async def test_partitions_are_made_ahead_once(postgres: Postgres) -> None:
    tables = LogTables(postgres)
    assert await tables.create_partitions(TODAY) == 8
    assert await tables.create_partitions(TODAY) == 0
    assert (await partitions(postgres))[:4] == [f"decisions_2026030{day}" for day in (1, 2, 3, 4)]


async def test_many_may_make_the_same_partitions_at_once(postgres: Postgres) -> None:
    tables = LogTables(postgres)
    made = await asyncio.gather(
        *(tables.create_partitions(TODAY) for _ in range(4)),
        *(tables.write(rows_at(AT_MS + n), timeout_s=5) for n in range(4)),
    )
    assert len(await partitions(postgres)) == 8
    assert sum(one for one in made if isinstance(one, int)) <= 8


async def test_only_what_is_older_than_the_retention_goes(postgres: Postgres) -> None:
    tables = LogTables(postgres)
    await tables.write(rows_at(AT_MS - 31 * DAY_MS, AT_MS - 30 * DAY_MS, AT_MS), timeout_s=5)
    dropped = await tables.drop_expired(TODAY, retention_days=30)
    assert dropped == ["decisions_20260129", "reports_20260129"]
    assert [row[0] for row in await postgres.fetch("SELECT id FROM decisions ORDER BY at")] == [
        f"d_{AT_MS - 30 * DAY_MS}",
        f"d_{AT_MS}",
    ]


async def test_a_table_that_is_no_partition_is_never_dropped(postgres: Postgres) -> None:
    await postgres.fetch("CREATE TABLE decisions_20200101 ()")
    await postgres.fetch("CREATE TABLE other (day int) PARTITION BY RANGE (day)")
    await postgres.fetch("CREATE TABLE other_20200101 PARTITION OF other FOR VALUES FROM (1) TO (2)")
    assert await LogTables(postgres).drop_expired(TODAY, retention_days=1) == []


async def test_old_dead_letters_go_too(postgres: Postgres) -> None:
    tables = LogTables(postgres)
    await tables.write(LogRows.of([b"\xff"]), timeout_s=5)
    await tables.drop_expired(date.today(), retention_days=1)  # noqa: DTZ011
    assert len(await postgres.fetch("SELECT FROM dead_letters")) == 1
    await postgres.fetch("UPDATE dead_letters SET at = at - interval '3 days'")
    await tables.drop_expired(date.today(), retention_days=1)  # noqa: DTZ011
    assert await postgres.fetch("SELECT FROM dead_letters") == []


async def test_a_long_reader_delays_retention_and_not_the_log(postgres: Postgres) -> None:
    tables = LogTables(postgres)
    await tables.write(rows_at(AT_MS), timeout_s=5)
    async with postgres.transaction() as reader:
        await reader.fetch("SELECT FROM decisions")
        with pytest.raises(StoreReplyError, match=r"^55P03"):
            await tables.drop_expired(date(2026, 5, 1), retention_days=1)
        assert (await tables.write(rows_at(AT_MS + 1), timeout_s=5))["decisions"] == 1


async def test_reports_join_their_decision(postgres: Postgres) -> None:
    entries = [decision_entry("d_1", "d_2"), report_entry(decision_id="d_2", at_ms=AT_MS + DAY_MS)]
    await LogTables(postgres).write(LogRows.of(map(encode_entry, entries)), timeout_s=5)
    joined = await postgres.fetch(
        "SELECT d.id, r.status FROM reports AS r JOIN decisions AS d USING (decision_id)"
    )
    assert [tuple(row) for row in joined] == [("d_2", "executed")]
