"""Beat and worker as real processes on a real broker: jobs run at start, SIGTERM ends both."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from tests.postgres import PostgresServer
from tests.waiting import eventually

WORKER = ("-q", "worker", "--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat")
BEAT = ("-q", "beat")
STOP_S = 15


class Celery:
    """One `celery` process and what it wrote."""

    def __init__(self, arguments: tuple[str, ...], broker: str, database: str, log: Path) -> None:
        self.log = log
        env = {**os.environ, "MUSTER_BROKER_URL": broker, "MUSTER_POSTGRES_URL": database}
        argv = [sys.executable, "-m", "celery", "-A", "scheduler.celery_app", *arguments]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                argv, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent
            )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_S)


@pytest.fixture
def processes(own_valkey: EmbeddedValkey, database: str, tmp_path: Path) -> Iterator[tuple[Celery, Celery]]:
    """A worker and a beat."""
    started: list[Celery] = []
    try:
        for name, arguments in (("worker", WORKER), ("beat", BEAT)):
            started.append(Celery(arguments, own_valkey.url, database, tmp_path / f"{name}.log"))
        yield started[0], started[1]
    finally:
        for one in started:
            with contextlib.suppress(ProcessLookupError):
                one.process.kill()
            one.process.wait()


def database_name(url: str) -> str:
    return url.split("/")[3].split("?")[0]


def partitions(server: PostgresServer, database: str) -> list[str]:
    name = database_name(database)
    sql = (
        "SELECT inhrelid::regclass FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent "
        "WHERE parent.relkind = 'p' ORDER BY 1"
    )
    return server.execute(sql, name).splitlines()


async def test_jobs_run_at_start_and_sigterm_ends_beat_and_worker(
    processes: tuple[Celery, Celery], postgres_server: PostgresServer, database: str
) -> None:
    name = database_name(database)
    today = datetime.now(UTC).date()
    old = today - timedelta(days=400)
    postgres_server.execute(f"SELECT ensure_log_days(ARRAY['{old}']::date[])", name)
    expected = [f"decisions_{today + timedelta(days=n):%Y%m%d}" for n in range(4)]

    async def done() -> bool:
        there = partitions(postgres_server, database)
        return [one for one in there if one.startswith("decisions")] == expected

    await eventually(done, 30)
    worker, beat = processes
    assert [beat.stop(), worker.stop()] == [0, 0]
    for one in processes:
        assert "Traceback" not in one.log.read_text()
        assert "superuser" not in one.log.read_text()


async def test_both_outlive_a_broker_that_restarts(
    processes: tuple[Celery, Celery],
    own_valkey: EmbeddedValkey,
    postgres_server: PostgresServer,
    database: str,
) -> None:
    worker, beat = processes

    async def done() -> bool:
        return len(partitions(postgres_server, database)) == 8

    await eventually(done, 30)
    await own_valkey.stop()
    await own_valkey.start()
    assert beat.stop() == 0
    name = database_name(database)
    postgres_server.execute("SELECT drop_log_days('2100-01-01')", name)
    again = Celery(BEAT, own_valkey.url, database, beat.log.with_name("again.log"))
    try:
        await eventually(done, 30)
    finally:
        assert again.stop() == 0
    assert worker.stop() == 0


async def test_sigterm_ends_both_while_the_broker_is_away(
    processes: tuple[Celery, Celery],
    own_valkey: EmbeddedValkey,
    postgres_server: PostgresServer,
    database: str,
) -> None:
    async def done() -> bool:
        return len(partitions(postgres_server, database)) == 8

    await eventually(done, 30)
    await own_valkey.stop()
    worker, beat = processes

    async def noticed() -> bool:
        return "Cannot connect to" in worker.log.read_text()

    await eventually(noticed, 30)
    assert [beat.stop(), worker.stop()] == [0, 0]


async def test_a_job_that_fails_does_not_end_the_worker(
    processes: tuple[Celery, Celery],
    own_valkey: EmbeddedValkey,
    postgres_server: PostgresServer,
    database: str,
) -> None:
    name = database_name(database)

    async def done() -> bool:
        return len(partitions(postgres_server, database)) == 8

    await eventually(done, 30)
    worker, beat = processes
    postgres_server.execute("ALTER FUNCTION ensure_log_days RENAME TO away", name)
    assert beat.stop() == 0
    again = Celery(BEAT, own_valkey.url, database, beat.log.with_name("again.log"))

    async def failed() -> bool:
        return "42883" in worker.log.read_text()

    try:
        await eventually(failed, 30)
    finally:
        again.stop()
    assert worker.process.poll() is None
    assert worker.stop() == 0
