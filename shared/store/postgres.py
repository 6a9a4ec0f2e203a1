"""Postgres through asyncpg: a pool that opens when first used, and the edge where the driver's errors end.

A server that answers with an error raises StoreReplyError (its SQLSTATE leads the text); one that is away,
shutting down, full of connections or too slow raises StoreUnavailableError.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, cast

import asyncpg

from shared.errors import ConfigError, StoreReplyError, StoreUnavailableError

CONNECT_TIMEOUT_S = 5.0
ROLLBACK_TIMEOUT_S = 2.0
# 08 connection exception, 53 insufficient resources, 57 operator intervention (shutdown, start, cancel).
_AWAY_CLASSES = frozenset({"08", "53", "57"})
_BAD_DATA = "22000"  # a value that the driver itself could not encode


class Row(Protocol):
    """One row: values by position or by column name."""

    def __getitem__(self, key: int | str) -> Any: ...


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what the driver raises inside into the store's errors."""
    try:
        yield
    except asyncpg.PostgresError as exc:
        code = exc.sqlstate or "XX000"
        if code[:2] in _AWAY_CLASSES:
            raise StoreUnavailableError(f"{code} {exc}") from exc
        raise StoreReplyError(f"{code} {exc}") from exc
    except asyncpg.DataError as exc:
        raise StoreReplyError(f"{_BAD_DATA} {exc}") from exc
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError) as exc:
        raise StoreUnavailableError(f"postgres: {type(exc).__name__} {exc}") from exc


class Transaction:
    """One open transaction: committed when its block ends, rolled back when the block raises."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *args: object) -> list[Row]:
        """The rows of one statement."""
        with translated_errors():
            return cast("list[Row]", await self._connection.fetch(sql, *args))

    async def execute(self, sql: str, *args: object) -> int:
        """Run one statement (or, without arguments, several); returns the rows it changed."""
        with translated_errors():
            tag: str = await self._connection.execute(sql, *args)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def copy(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """COPY rows into a table of this transaction, binary."""
        with translated_errors():
            await self._connection.copy_records_to_table(table, columns=columns, records=rows)


class Postgres:
    """A pool of connections to one database."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @staticmethod
    async def open(url: str, *, max_connections: int = 4, statement_cache_size: int = 0) -> "Postgres":
        """Make a pool without connecting: the server may be away.

        `statement_cache_size` stays 0 behind a transaction pooler, where a prepared statement belongs to
        someone else's connection. Raises ConfigError for an address that cannot be read.
        """
        if not url.startswith(("postgresql://", "postgres://")):
            raise ConfigError("MUSTER_POSTGRES_URL: must start with postgresql://")
        pool = await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=max_connections,
            timeout=CONNECT_TIMEOUT_S,
            statement_cache_size=statement_cache_size,
            reset=_keep_session,
            server_settings={"application_name": "muster"},
        )
        return Postgres(pool)

    @asynccontextmanager
    async def transaction(self, *, timeout_s: float = 10.0) -> AsyncIterator[Transaction]:
        """One transaction that takes at most `timeout_s`, waiting for a connection and commit included.

        After StoreUnavailableError it may have been committed all the same. A connection that timed out is
        thrown away, never rolled back: its server may be frozen.
        """
        try:
            async with asyncio.timeout(timeout_s):
                with translated_errors():
                    connection = await self._pool.acquire()
                try:
                    async with _transaction_on(connection) as transaction:
                        yield transaction
                finally:
                    await self._pool.release(connection)
        except TimeoutError as exc:
            raise StoreUnavailableError(f"postgres: no answer within {timeout_s} s") from exc

    async def fetch(self, sql: str, *args: object, timeout_s: float = 10.0) -> list[Row]:
        """The rows of one statement in a transaction of its own."""
        async with self.transaction(timeout_s=timeout_s) as transaction:
            return await transaction.fetch(sql, *args)

    async def close(self) -> None:
        """Close every connection, politely if the servers answer."""
        try:
            async with asyncio.timeout(ROLLBACK_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


@asynccontextmanager
async def _transaction_on(connection: Any) -> AsyncIterator[Transaction]:
    transaction = connection.transaction()
    try:
        with translated_errors():
            await transaction.start()
        yield Transaction(connection)
        with translated_errors():
            await transaction.commit()
    except StoreReplyError:
        await _roll_back(connection, transaction)
        raise
    except BaseException:  # cancelled, timed out or torn: what the connection is in the middle of is unknown
        connection.terminate()
        raise


async def _roll_back(connection: Any, transaction: Any) -> None:
    try:
        async with asyncio.timeout(ROLLBACK_TIMEOUT_S):
            await transaction.rollback()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


async def _keep_session(_connection: object) -> None:
    """Nothing to reset on release: settings are only ever made with SET LOCAL."""
