"""The schema equals the migrations; they run once, also with several migrators and when one fails."""

import asyncio
import json
import re
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner

from deploy.commands.migrate import command
from shared.errors import ConfigError, StoreReplyError, StoreUnavailableError
from shared.store.migrations import load_migrations, migrate, parse_migration
from tests.postgres import PostgresServer

SCHEMA = Path(__file__).with_name("schema.sql")


def tidy(dump: str) -> str:
    """A dump without what differs between servers and runs."""
    lines = [
        line
        for line in dump.splitlines()
        if not line.startswith(("--", "\\restrict", "\\unrestrict", "SET "))
    ]
    return re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip() + "\n"


async def fetch(url: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_the_migrations_make_the_schema(postgres_server: PostgresServer, empty_database: str) -> None:
    """After a new migration: read the difference, then put the dump into schema.sql."""
    await migrate(empty_database)
    name = empty_database.split("/")[3].split("?")[0]
    assert tidy(postgres_server.dump_schema(name)) == SCHEMA.read_text(encoding="utf-8")


async def test_running_again_changes_nothing(empty_database: str) -> None:
    applied = await migrate(empty_database)
    assert applied == [one.name for one in load_migrations()]
    when = await fetch(empty_database, "SELECT * FROM schema_migrations")
    assert await migrate(empty_database) == []
    assert await fetch(empty_database, "SELECT * FROM schema_migrations") == when


async def test_concurrent_migrators_apply_each_file_once(empty_database: str) -> None:
    results = await asyncio.gather(*(migrate(empty_database) for _ in range(6)))
    assert sorted(name for names in results for name in names) == [one.name for one in load_migrations()]


async def test_a_failing_migration_leaves_the_ones_before_it(empty_database: str) -> None:
    good = parse_migration("001_good.pre.sql", "CREATE TABLE good ()")
    bad = parse_migration("002_bad.pre.sql", "CREATE TABLE half (); SELECT 1/0")
    with pytest.raises(StoreReplyError, match=r"^22012"):
        await migrate(empty_database, known=[good, bad])
    assert await fetch(empty_database, "SELECT to_regclass('good')::text, to_regclass('half')::text") == [
        ("good", None)
    ]
    mended = parse_migration("002_bad.pre.sql", "CREATE TABLE half ()")
    assert await migrate(empty_database, known=[good, mended]) == ["002_bad.pre"]


async def test_pre_and_post_are_separate_steps(empty_database: str) -> None:
    known = [
        parse_migration("001_a.pre.sql", "CREATE TABLE a (old int)"),
        parse_migration("001_a.post.sql", "ALTER TABLE a DROP COLUMN old"),
    ]
    assert await migrate(empty_database, "pre", known) == ["001_a.pre"]
    assert await migrate(empty_database, "pre", known) == []
    assert await migrate(empty_database, "post", known) == ["001_a.post"]


async def test_a_migration_does_not_wait_behind_a_lock_for_long(empty_database: str) -> None:
    await migrate(empty_database, known=[parse_migration("001_a.pre.sql", "CREATE TABLE a ()")])
    blocked = parse_migration(
        "002_b.pre.sql", "SET LOCAL lock_timeout = '50ms'; ALTER TABLE a ADD COLUMN b int"
    )
    timeouts = parse_migration(
        "003_c.pre.sql",
        "CREATE TABLE seen AS SELECT current_setting('lock_timeout') AS lock, "
        "current_setting('statement_timeout') AS statement",
    )
    holder = await asyncpg.connect(empty_database)
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE a")
            with pytest.raises(StoreReplyError, match=r"^55P03"):
                await migrate(empty_database, known=[blocked])
    finally:
        await holder.close()
    await migrate(empty_database, known=[blocked, timeouts])
    assert await fetch(empty_database, "SELECT * FROM seen") == [("5s", "5min")]


async def test_a_database_of_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(ConfigError, match="UTF8"):
        await migrate(postgres_server.url("latin"))


async def test_a_server_that_is_away_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        await migrate(f"postgresql://muster@/muster?host={tmp_path}")


def test_the_command_tells_what_it_applied(empty_database: str) -> None:
    def run(*arguments: str, url: str = empty_database) -> tuple[int, str]:
        done = CliRunner().invoke(command, arguments, env={"MUSTER_POSTGRES_URL": url})
        return done.exit_code, done.output

    names = [one.name for one in load_migrations()]
    code, output = run("--json")
    assert (code, json.loads(output)) == (0, {"applied": names})
    code, output = run("--json", "--phase", "post")
    assert (code, json.loads(output)) == (0, {"applied": []})
    assert run() == (0, "nothing to apply\n")
    code, output = run(url="postgresql://muster@/muster?host=/nowhere")
    assert code == 1
    assert output.startswith("Error: postgres: ")
