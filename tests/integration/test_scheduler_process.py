"""`python -m scheduler` as a real process: killed under load it loses nothing; SIGTERM ends it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.decision_log import encode_entry
from shared.store.connection import RedisConnection, open_connection
from shared.store.keys import QueueKeys
from shared.store.postgres import Postgres
from tests.log_entries import decision_entry
from tests.waiting import eventually

LOG = QueueKeys(0).log


class LogWriterProcess:
    """One `python -m scheduler`; may be started again after its end."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._env = {**os.environ, "MUSTER_INTERNAL_BIND": "127.0.0.1:0", **env}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scheduler"], env=self._env, stdout=output, stderr=output
            )

    def end(self, number: signal.Signals) -> int:
        """Send a signal; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        assert self._process is not None
        return self._process.wait(timeout=15)

    def output(self) -> str:
        return self._log.read_text()

    def status(self, path: str) -> tuple[int, str]:
        """What its internal port answers; (0, "") before it listens."""
        address = re.search(r'"internal": "([^"]+)"', self.output())
        if address is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://{address[1]}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as exc:
            return exc.code, ""

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)


@pytest.fixture
def log_writer(own_valkey: EmbeddedValkey, database: str, tmp_path: Path) -> Iterator[LogWriterProcess]:
    env = {
        "MUSTER_REDIS_URL": own_valkey.url,
        "MUSTER_POSTGRES_URL": database,
        "MUSTER_SPILL_DIR": str(tmp_path / "spill"),
    }
    process = LogWriterProcess(env, tmp_path / "log")
    yield process
    process.remove()


@pytest.fixture
async def connection(own_valkey: EmbeddedValkey) -> AsyncIterator[RedisConnection]:
    opened = open_connection(own_valkey.url)
    await opened.wait_connected(5)
    yield opened
    await opened.close()


async def test_killed_again_and_again_it_loses_and_repeats_nothing(
    log_writer: LogWriterProcess, connection: RedisConnection, database: str
) -> None:
    written = 0
    postgres = await Postgres.open(database)

    async def put(count: int) -> None:
        nonlocal written
        raws = [encode_entry(decision_entry(f"d_{n}")) for n in range(written, written + count)]
        await connection.trip([("XADD", LOG, "*", "e", raw) for raw in raws], timeout_s=5)
        written += count

    async def stored() -> int:
        [row] = await postgres.fetch("SELECT count(*) FROM decisions")
        return int(row[0])

    async def some_are_stored() -> bool:
        await put(100)
        return await stored() > before

    async def all_are_stored() -> bool:
        return await stored() == written

    async def stream_is_empty() -> bool:
        return await connection.trip([("XLEN", LOG)], timeout_s=5) == [0]

    for _ in range(4):
        before = await stored()
        log_writer.start()
        await eventually(some_are_stored)
        log_writer.end(signal.SIGKILL)
    log_writer.start()
    await eventually(all_are_stored)
    await eventually(stream_is_empty)
    [row] = await postgres.fetch("SELECT count(DISTINCT id) FROM decisions")
    assert row[0] == written
    await postgres.close()


async def test_it_tells_its_health_and_stops_in_order(
    log_writer: LogWriterProcess, connection: RedisConnection
) -> None:
    log_writer.start()

    async def ready() -> bool:
        return (await asyncio.to_thread(log_writer.status, "/readyz"))[0] == 200

    await eventually(ready)
    await connection.trip([("XADD", LOG, "*", "e", encode_entry(decision_entry("d_1", "d_2")))], timeout_s=5)

    async def counted() -> bool:
        _, metrics = await asyncio.to_thread(log_writer.status, "/metrics")
        return 'muster_log_written_rows_total{table="decisions"} 2.0' in metrics

    await eventually(counted)
    assert log_writer.end(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in log_writer.output().splitlines()]
    assert lines[-1]["event"] == "log writer stopped"
    assert {line["level"] for line in lines} == {"info"}


async def test_it_stops_in_order_while_redis_is_away(
    log_writer: LogWriterProcess, own_valkey: EmbeddedValkey
) -> None:
    log_writer.start()

    async def ready() -> bool:
        return (await asyncio.to_thread(log_writer.status, "/readyz"))[0] == 200

    async def not_ready() -> bool:
        return (await asyncio.to_thread(log_writer.status, "/readyz"))[0] == 503

    await eventually(ready)
    await own_valkey.stop()
    await eventually(not_ready)
    assert log_writer.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("MUSTER_SPILL_DIR", ""), ("MUSTER_SPILL_DIR", "/dev/null"), ("MUSTER_POSTGRES_URL", "mysql://x")],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, name: str, value: str) -> None:
    process = LogWriterProcess({"MUSTER_SPILL_DIR": str(tmp_path / "spill"), name: value}, tmp_path / "log")
    process.start()
    assert process.exit_code() == 1
    assert process.output().splitlines()[-1].startswith(f"muster scheduler: {name}: ")
