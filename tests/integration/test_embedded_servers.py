"""The embedded Valkey and Postgres: data survive, leftovers do not matter, nobody is orphaned."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from deploy.embedded.children import descendants
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.servers import ServerStartError
from deploy.embedded.valkey import EmbeddedValkey


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder with a short path, closed to everybody else."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@asynccontextmanager
async def valkey_client(server: EmbeddedValkey) -> AsyncIterator["redis.asyncio.Redis"]:
    client = redis.asyncio.Redis.from_url(server.url)
    try:
        yield client
    finally:
        await client.aclose()


async def query(server: EmbeddedPostgres, sql: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_valkey_keeps_its_data_over_stop_and_kill(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    await server.start()
    async with valkey_client(server) as client:
        await client.set("a", 1)
    await server.stop()
    await server.start()
    async with valkey_client(server) as client:
        assert await client.get("a") == b"1"
        await client.set("b", 2)
        await client.waitaof(1, 0, 5000)
    await server.kill()
    await server.start()
    async with valkey_client(server) as client:
        assert await client.mget("a", "b") == [b"1", b"2"]
    await server.stop()


async def test_valkey_starts_with_a_torn_log(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    await server.start()
    async with valkey_client(server) as client:
        await client.set("whole", 1)
        await client.set("torn", 2)
    await server.stop()
    (log,) = (directory / "data" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(log.read_bytes()[:-5])
    await server.start()
    async with valkey_client(server) as client:
        assert await client.mget("whole", "torn") == [b"1", None]
    await server.stop()


async def test_valkey_listens_on_no_port_and_its_socket_is_ours_alone(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    await server.start()
    async with valkey_client(server) as client:
        assert (await client.config_get("port"))["port"] == "0"
    assert server.socket.stat().st_mode & 0o077 == 0
    await server.stop()


async def test_a_suspended_valkey_answers_nothing_until_it_is_resumed(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    await server.start()
    async with valkey_client(server) as client:
        await client.ping()
        server.suspend()
        answer = asyncio.ensure_future(client.ping())
        done, _ = await asyncio.wait([answer], timeout=0.3)
        assert not done
        server.resume()
        assert await answer
    server.suspend()
    await server.stop()


async def test_valkey_says_why_it_cannot_start(directory: Path) -> None:
    (directory / "data" / "appendonlydir").mkdir(parents=True)
    (directory / "data" / "appendonlydir" / "appendonly.aof.manifest").write_text("no manifest\n")
    with pytest.raises(ServerStartError, match="AOF MANIFEST"):
        await EmbeddedValkey(directory).start()


async def test_postgres_keeps_its_data_over_stop_and_kill(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    await server.start()
    await query(server, "CREATE TABLE t AS SELECT 1 AS x")
    await server.stop()
    await server.start()
    await query(server, "INSERT INTO t VALUES (2)")
    await server.kill()
    await server.start()
    assert await query(server, "SELECT sum(x) FROM t") == 3
    await server.stop()


async def test_both_work_below_a_long_path(directory: Path) -> None:
    deep = directory / ("x" * 120)
    valkey, postgres = EmbeddedValkey(deep / "valkey"), EmbeddedPostgres(deep / "postgres")
    await asyncio.gather(valkey.start(), postgres.start())
    async with valkey_client(valkey) as client:
        assert await client.ping()
    assert await query(postgres, "SELECT current_user || current_database()") == "mustermuster"
    await asyncio.gather(valkey.stop(), postgres.stop())


async def test_postgres_ignores_the_callers_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6000")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    server = EmbeddedPostgres(directory)
    await server.start()
    assert await query(server, "SHOW timezone") == "UTC"
    await server.stop()


async def test_a_pid_file_that_names_somebody_else_does_not_block(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    child = await server.start()
    pid_file = directory / "home" / "data" / "postmaster.pid"
    text = pid_file.read_text()
    await server.kill()
    pid_file.write_text(text.replace(str(child.pid), str(os.getpid()), 1))
    await server.start()
    assert await query(server, "SELECT 1") == 1
    await server.stop()


async def test_an_interrupted_creation_is_begun_anew(directory: Path) -> None:
    half = directory / "home" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(directory)
    await server.start()
    assert await query(server, "SELECT 1") == 1
    await server.stop()


async def test_a_suspended_postgres_answers_nothing_until_it_is_resumed(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    await server.start()
    connection = await asyncpg.connect(server.url)
    server.suspend()
    answer = asyncio.ensure_future(connection.fetchval("SELECT 1"))
    done, _ = await asyncio.wait([answer], timeout=0.3)
    assert not done
    server.resume()
    assert await answer == 1
    await connection.close()
    server.suspend()
    await server.stop()


async def test_a_postgres_that_is_killed_while_suspended_does_not_block(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    await server.start()
    server.suspend()
    await server.kill()
    await asyncio.wait_for(server.start(), 9)
    assert await query(server, "SELECT 1") == 1
    await server.stop()


async def test_postgres_says_why_it_cannot_start(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    await server.start()
    await server.stop()
    (directory / "home" / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ServerStartError, match="incompatible"):
        await server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends another account")
async def test_for_root_postgres_runs_as_nobody_in_folders_nobody_can_reach(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    child = await server.start()
    assert mode(directory) & 0o077 == 0
    assert {owner(Path(f"/proc/{pid}")) for pid in (child.pid, *descendants(child.pid))} == {65_534}
    await server.stop()


def mode(path: Path) -> int:
    return path.stat().st_mode


def owner(path: Path) -> int:
    return path.stat().st_uid


_OWNER = """
import asyncio, pathlib, sys
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey

async def main(directory):
    valkey, postgres = EmbeddedValkey(directory / "v"), EmbeddedPostgres(directory / "p")
    children = await asyncio.gather(valkey.start(), postgres.start())
    print(*(child.pid for child in children), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
async def test_neither_outlives_an_owner_that_is_killed(directory: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    valkey_pid, postgres_pid = map(int, (await owner.stdout.readline()).split())
    everyone = [valkey_pid, postgres_pid, *descendants(valkey_pid), *descendants(postgres_pid)]
    assert len(everyone) > 4
    ends = [os.pidfd_open(pid) for pid in everyone]
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    await asyncio.wait_for(asyncio.gather(*map(readable, ends)), 5)


async def readable(descriptor: int) -> None:
    """Until a pidfd says that its process has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    await ended.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)
