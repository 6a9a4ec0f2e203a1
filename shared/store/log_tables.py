"""Writes of the decision log to Postgres: idempotent, one transaction a batch."""

from datetime import date, timedelta

from shared.errors import StoreReplyError
from shared.store.log_rows import DECISION_COLUMNS, REPORT_COLUMNS, LogRows, TableRow
from shared.store.postgres import Postgres, Transaction
from shared.store.queries import QUERIES

DAYS_AHEAD = 3  # partitions made before they are needed
# 22 data exception, 23 integrity violation (no partition, too), 54 a limit such as an index row's size.
_DATA_CLASSES = frozenset({"22", "23", "54"})


def is_data_error(error: StoreReplyError) -> bool:
    """Whether a row is at fault, not the server or the schema."""
    return str(error)[:2] in _DATA_CLASSES


class LogTables:
    """The log's tables in one database."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def ping(self, *, timeout_s: float = 2.0) -> None:
        """Raises StoreError unless the server answers in time."""
        await self._postgres.fetch(QUERIES["ping"], timeout_s=timeout_s)

    async def write(self, rows: LogRows, *, timeout_s: float) -> dict[str, int]:
        """Store a batch, all or nothing; what is there already stays. Returns the new rows by table."""
        async with self._postgres.transaction(timeout_s=timeout_s) as transaction:
            if rows.days:
                await transaction.fetch(QUERIES["ensure_log_days"], sorted(rows.days))
            return {
                "decisions": await _copy(transaction, "decisions", DECISION_COLUMNS, rows.decisions),
                "reports": await _copy(transaction, "reports", REPORT_COLUMNS, rows.reports),
                "manifests": await _insert(transaction, "insert_manifests", rows.manifests),
                "static_texts": await _insert(transaction, "insert_static_texts", rows.static_texts),
                "dead_letters": await _insert(transaction, "insert_dead_letters", rows.dead_letters),
            }

    async def create_partitions(self, today: date) -> int:
        """Make the partitions of today and the next days; returns how many were missing."""
        days = [today + timedelta(days=n) for n in range(DAYS_AHEAD + 1)]
        [row] = await self._postgres.fetch(QUERIES["ensure_log_days"], days)
        return int(row[0])

    async def drop_expired(self, today: date, retention_days: int) -> list[str]:
        """Drop partitions (and dead letters) older than `retention_days`; returns the tables dropped.

        Raises StoreReplyError (55P03) when a reader holds the log for longer than the lock timeout.
        """
        before = today - timedelta(days=retention_days)
        async with self._postgres.transaction() as transaction:
            await transaction.execute(QUERIES["retention_lock_timeout"])
            dropped = await transaction.fetch(QUERIES["drop_log_days"], before)
            await transaction.execute(QUERIES["drop_dead_letters"], before)
        return [row[0] for row in dropped]


async def _copy(transaction: Transaction, table: str, columns: tuple[str, ...], rows: list[TableRow]) -> int:
    if not rows:
        return 0
    await transaction.execute(QUERIES[f"stage_{table}"])
    await transaction.copy(f"new_{table}", columns, rows)
    return await transaction.execute(QUERIES[f"insert_{table}"])


async def _insert(transaction: Transaction, query: str, rows: list[TableRow]) -> int:
    return await transaction.execute(QUERIES[query], *zip(*rows, strict=True)) if rows else 0
