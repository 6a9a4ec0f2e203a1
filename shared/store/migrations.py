"""Numbered migrations of the database, applied once each.

`sql/migrations/NNN_name.pre.sql` adds, and runs before new code is rolled out; `NNN_name.post.sql` removes
what only old code needed, and runs after. Every file is one transaction. Applied files never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal

import asyncpg

from shared.errors import ConfigError
from shared.store.postgres import CONNECT_TIMEOUT_S, translated_errors
from shared.store.queries import QUERIES

Phase = Literal["pre", "post", "all"]
LOCK_WAIT_S = 600  # for another migrator to finish


@dataclass(frozen=True, slots=True, order=True)
class Migration:
    """One file; sorts in the order of application (`pre` before `post` of a number)."""

    number: int
    is_post: bool
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


def parse_migration(file_name: str, sql: str) -> Migration:
    """Read `NNN_name.pre.sql`; raises ValueError for another name."""
    stem = file_name.removesuffix(".sql")
    title, _, when = stem.rpartition(".")
    number = title.partition("_")[0]
    if when not in ("pre", "post") or not number.isdigit():
        raise ValueError(f"{file_name}: a migration is named NNN_name.pre.sql or NNN_name.post.sql")
    return Migration(int(number), when == "post", stem, sql)


def load_migrations() -> list[Migration]:
    """The migrations of this version, in order."""
    folder = files("shared.store").joinpath("sql", "migrations")
    sources = [item for item in folder.iterdir() if item.name.endswith(".sql")]
    return sorted(parse_migration(item.name, item.read_text(encoding="utf-8")) for item in sources)


def plan_migrations(known: Iterable[Migration], applied: Mapping[str, str], phase: Phase) -> list[Migration]:
    """What is left to apply, in order.

    `applied` maps name to checksum; names that this version does not know are a newer version's and are left
    alone. Raises ConfigError when an applied file was changed, or when `pre` would overtake an earlier
    version's pending `post`.
    """
    pending: list[Migration] = []
    for migration in sorted(known):
        if migration.name not in applied:
            pending.append(migration)
        elif applied[migration.name] != migration.checksum:
            raise ConfigError(f"migration {migration.name} was changed after it had been applied")
    if phase == "all":
        return pending
    chosen = [migration for migration in pending if migration.is_post == (phase == "post")]
    skipped = [migration for migration in pending if migration.is_post != (phase == "post")]
    if chosen and skipped and min(skipped) < max(chosen):
        raise ConfigError(f"migration {min(skipped).name} has to be applied before {max(chosen).name}")
    return chosen


async def migrate(url: str, phase: Phase = "all", known: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is pending; returns the names applied. Safe to run twice, and by several at once.

    `url` must reach the server itself, not a transaction pooler: a session's lock keeps migrators apart.
    Raises StoreError, and ConfigError as `plan_migrations` does or for a database that is not UTF-8.
    """
    migrations = load_migrations() if known is None else known
    with translated_errors():
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S, statement_cache_size=0)
        try:
            return await _migrate_on(connection, migrations, phase)
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)


async def _migrate_on(connection: Any, migrations: Sequence[Migration], phase: Phase) -> list[str]:
    if await connection.fetchval(QUERIES["server_encoding"]) != "UTF8":
        raise ConfigError("the database's encoding must be UTF8")
    await connection.execute(QUERIES["lock_migrations"], timeout=LOCK_WAIT_S)
    await connection.execute(QUERIES["migrations_table"])
    applied = {row["name"]: row["checksum"] for row in await connection.fetch(QUERIES["applied_migrations"])}
    chosen = plan_migrations(migrations, applied, phase)
    for migration in chosen:
        async with connection.transaction():
            await connection.execute(QUERIES["migration_timeouts"])
            await connection.execute(migration.sql)
            await connection.execute(QUERIES["record_migration"], migration.name, migration.checksum)
    return [migration.name for migration in chosen]
