"""`muster up` as an operator meets it: one line when ready, nothing left behind, whatever dies comes back."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest
import redis.asyncio

from deploy.embedded.children import descendants
from tests.stack import MUSTER, STOP_S, Ends, Up, eventually, ups

Start = Callable[..., Up]


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A platform that the tests of this module share; each leaves it working."""
    with ups() as start:
        yield start("--gateways", "2").ready()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


_MANIFEST = {
    "world": "A hive.",
    "entity_types": {"bee": {"description": "A bee.", "actions": {"fly": "Fly.", "rest": "Rest."}}},
}
_BEE = {"id": "b1", "type": "bee", "observation": {}, "legal_actions": ["fly", "rest"]}


async def announce(client: aiohttp.ClientSession, up: Up, client_id: str) -> None:
    body = {"a2g": "0.1", "client_id": client_id, "manifest": _MANIFEST}
    async with client.post(f"{up.url}/v1/session", json=body) as response:
        assert response.status == 200


async def decide(client: aiohttp.ClientSession, up: Up, client_id: str, epoch: int) -> str:
    """The bee's action, or what else was answered."""
    body = {"client_id": client_id, "epoch": epoch, "world": {}, "entities": [_BEE]}
    async with client.post(f"{up.url}/v1/decide", json=body) as response:
        answer = await response.json()
        return str(answer["decisions"][0]["action"]) if response.status == 200 else str(answer)


async def test_ready_means_that_a_decide_request_succeeds(muster_up: Start) -> None:
    up = muster_up().ready()
    async with aiohttp.ClientSession() as client:
        await announce(client, up, "first")
        assert await decide(client, up, "first", 1) in _BEE["legal_actions"]


async def test_the_data_directory_is_the_owners_alone(up: Up) -> None:
    assert mode(up.data_dir) == 0o700
    assert mode(up.data_dir / "stack.json") == 0o600
    assert mode(up.data_dir / "secret_keys") == 0o600


async def test_every_process_shows_its_role(up: Up) -> None:
    shown = {name: command_line(process.pid) for name, process in up.stack().processes.items()}
    assert "muster gateway" in shown["gateway-1"]
    assert "muster gateway" in shown["gateway-2"]
    assert "muster worker" in shown["worker-1"]
    assert "muster scheduler" in shown["scheduler"]
    assert "celery" in shown["celery-worker"]
    assert "celery" in shown["celery-beat"]


async def test_every_role_serves_health_and_metrics(up: Up) -> None:
    internal = [process.internal for process in up.stack().processes.values() if process.internal]
    assert len(internal) == 4
    async with aiohttp.ClientSession() as client:
        for base in internal:
            for path in ("livez", "readyz", "metrics"):
                async with client.get(f"{base}/{path}") as response:
                    assert response.status == 200


@pytest.mark.parametrize("name", ["gateway-1", "worker-1", "scheduler", "celery-worker", "provider-sim"])
async def test_a_role_that_dies_is_started_again(up: Up, name: str) -> None:
    before = up.pid(name)
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: up.pid(name) != before)
    async with aiohttp.ClientSession() as client:
        await announce(client, up, name)
        assert await decide(client, up, name, 1) in _BEE["legal_actions"]


async def test_valkey_that_dies_comes_back_with_its_data(up: Up) -> None:
    client = redis.asyncio.Redis.from_url(up.stack().redis_url)
    await client.set("kept", "yes")
    await client.waitaof(1, 0, 5000)
    await client.aclose()
    before = up.pid("valkey")
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: up.pid("valkey") != before)
    client = redis.asyncio.Redis.from_url(up.stack().redis_url)
    assert await client.get("kept") == b"yes"
    await client.aclose()


async def test_postgres_that_dies_comes_back_with_its_data(up: Up) -> None:
    connection = await asyncpg.connect(up.stack().postgres_url)
    await connection.execute("CREATE TABLE kept AS SELECT 7 AS x")
    await connection.close()
    before = up.pid("postgres")
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: up.pid("postgres") != before)
    connection = await asyncpg.connect(up.stack().postgres_url)
    assert await connection.fetchval("SELECT x FROM kept") == 7
    await connection.execute("DROP TABLE kept")
    await connection.close()


async def test_a_rolling_restart_fails_no_request(up: Up) -> None:
    before = {up.pid("gateway-1"), up.pid("gateway-2")}
    answers: list[str] = []

    async def ask(client: aiohttp.ClientSession) -> None:
        while True:
            answers.append(await decide(client, up, "roll", len(answers)))

    async with aiohttp.ClientSession() as client:
        await announce(client, up, "roll")
        asking = [asyncio.ensure_future(ask(client)) for _ in range(4)]
        ends = Ends(list(before))
        up.send(signal.SIGHUP)
        await eventually(lambda: not before & {up.pid("gateway-1"), up.pid("gateway-2")})
        assert await asyncio.to_thread(ends.all, 40)
        for task in asking:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    assert set(answers) <= {"fly", "rest"}
    assert len(answers) > 50


def test_a_second_one_on_the_same_data_is_refused(up: Up, muster_up: Start) -> None:
    second = muster_up(data_dir=up.data_dir)
    assert second.wait() == 1
    line = second.stderr().splitlines()[-1]
    assert line == f"muster: --data-dir {up.data_dir}: process {up.process.pid} runs on it already"
    assert second.remaining_output() == ""


def test_sigterm_drains_and_leaves_nothing(muster_up: Start) -> None:
    up = muster_up().ready()
    ends = Ends(up.pids())
    assert up.stop() == 0
    assert ends.all(0.1)
    assert up.remaining_output() == ""
    assert "ready http" not in up.stderr()
    assert not (up.data_dir / "stack.json").exists()


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    near, far = os.openpty()
    process = subprocess.Popen(
        [sys.executable, str(MUSTER), "up", "--port", "0", "--data-dir", str(tmp_path / "data")],
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(far)
    try:
        said = b""
        while b"ready http://" not in said:
            said += os.read(near, 4096)
        ends = Ends(descendants(process.pid))
        os.close(near)
        assert process.wait(STOP_S) == 0
        assert ends.all(0.1)
    finally:
        process.kill()
        process.wait()


def test_killed_it_takes_everything_along_and_the_next_start_works(muster_up: Start) -> None:
    up = muster_up().ready()
    keys = (up.data_dir / "secret_keys").read_bytes()
    ends = Ends(up.pids())
    up.send(signal.SIGKILL)
    assert ends.all(5)
    again = muster_up(data_dir=up.data_dir).ready()
    assert (up.data_dir / "secret_keys").read_bytes() == keys
    again.send(signal.SIGINT)
    assert again.wait() == 0


def test_stopped_while_it_starts_it_leaves_nothing(muster_up: Start) -> None:
    up = muster_up()
    asyncio.run(eventually(lambda: len(up.pids()) > 2))
    ends = Ends(up.pids())
    assert up.stop() == 0
    assert ends.all(0.1)
    assert up.remaining_output() == ""


def test_a_second_signal_hurries_and_leaves_nothing(muster_up: Start) -> None:
    up = muster_up().ready()
    ends = Ends(up.pids())
    up.send(signal.SIGTERM)
    up.send(signal.SIGINT)
    assert up.wait() == 0
    assert ends.all(0.1)


@pytest.mark.parametrize("held", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_said_and_nothing_is_left(muster_up: Start, held: str) -> None:
    with socket.create_server((held, 0)) as taken:
        port = taken.getsockname()[1]
        up = muster_up("--port", str(port))
        assert up.wait() == 1
    assert up.stderr() == f"muster: --port {port}: Address already in use; choose another, or 0 for any\n"
    assert not (up.data_dir / "valkey").exists()


def test_a_wrong_file_is_told_by_the_path_of_its_fault(muster_up: Start, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"providers": {}, "routing": {"default": ["main"]}}')
    up = muster_up("--config", str(config))
    assert up.wait() == 1
    assert up.stderr() == "muster: routing.default[0]: no provider is called 'main'\n"


@pytest.mark.parametrize(
    ("options", "env"), [(("--profile", "hosted"), {}), ((), {"MUSTER_PROFILE": "hosted"})]
)
def test_the_hosted_profile_is_refused_until_it_can_be_kept(
    muster_up: Start, options: tuple[str, ...], env: dict[str, str]
) -> None:
    up = muster_up(*options, env=env)
    assert up.wait() == 1
    assert up.stderr().count("\n") == 1
    assert "--profile hosted" in up.stderr()


@pytest.mark.parametrize(
    ("name", "value"), [("MUSTER_REDIS_CLIENT", "telnet"), ("MUSTER_SECRET_KEYS", "1:c2hvcnQ=")]
)
def test_a_wrong_setting_is_one_line_that_names_it(muster_up: Start, name: str, value: str) -> None:
    up = muster_up(env={name: value})
    assert up.wait() == 1
    assert up.stderr().startswith(f"muster: {name}: ")
    assert up.stderr().count("\n") == 1
    assert value not in up.stderr()
