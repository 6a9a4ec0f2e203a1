"""`muster demo` as a command, against a small A2G server; and a platform that does not start."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from PIL import Image

from deploy.data_dir import DataDirectory
from deploy.demo.service import Addresses, ServiceError, read_addresses, start_service
from deploy.stack import Process, Stack, write_stack
from loadtests.simulator.faults import Faults
from loadtests.simulator.server import Simulator
from tests.demo_server import A2GServer

MUSTER = Path(sys.executable).with_name("muster")


@pytest.fixture
async def server() -> AsyncIterator[A2GServer]:
    server = A2GServer()
    yield server
    assert server.errors == []


@pytest.fixture
async def url(server: A2GServer) -> AsyncIterator[str]:
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def simulator_url() -> AsyncIterator[str]:
    runner = web.AppRunner(Simulator(Faults()).app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def tell(data_dir: Path, url: str, simulator: str | None = None, **processes: Process) -> None:
    write_stack(data_dir, Stack(1, url, "local", "r", "b", "p", "c", simulator, processes))


async def demo(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, str(MUSTER), "demo", *arguments, stdout=pipe, stderr=pipe
    )


async def finished(process: asyncio.subprocess.Process, timeout_s: float) -> tuple[bytes, bytes]:
    """What it printed, to standard output and error; one that does not end is killed."""
    try:
        return await asyncio.wait_for(process.communicate(), timeout_s)
    finally:
        if process.returncode is None:
            process.kill()


async def test_a_demo_ends_by_itself_with_figures_and_a_picture(
    server: A2GServer, url: str, simulator_url: str, tmp_path: Path
) -> None:
    tell(tmp_path, url, simulator_url)
    process = await demo(
        "--url", url, "--seconds", "3", "--worlds", "2", "--json", "--data-dir", str(tmp_path),
        "--picture", str(tmp_path / "w.png"), "--provider-outage", "0.5:2",
    )  # fmt: skip
    out, err = await finished(process, 60)
    assert process.returncode == 0, err
    figures = json.loads(out)
    assert (figures["worlds"], figures["scenes"], figures["sessions_opened"]) == (2, 2, 2)
    assert figures["decided"] > 0
    assert figures["simulated_provider"] is True
    assert figures["provider"] == {"calls": 0, "questions": 0, "tokens": 0, "cost_nanousd": None}
    assert figures["faults"] == {}
    assert 2.9 <= figures["seconds"] < 6
    assert b"PROVIDER OUTAGE" in err
    assert len({body["client_id"] for body in server.bodies["session"]}) == 2
    with Image.open(figures["picture"]) as image:
        assert image.format == "PNG"


async def test_a_demo_with_a_platform_of_its_own_survives_its_providers_outage(tmp_path: Path) -> None:
    process = await demo(
        "--seconds", "9", "--worlds", "2", "--json", "--data-dir", str(tmp_path),
        "--picture", str(tmp_path / "w.png"), "--provider-outage", "2:3",
    )  # fmt: skip
    out, err = await finished(process, 120)
    assert process.returncode == 0, err
    figures = json.loads(out)
    assert figures["faults"] == {}
    assert figures["decisions"]["unavailable"] > 0
    assert figures["provider"]["calls"] > 0
    assert figures["provider"]["cost_nanousd"] > 0
    assert figures["moves"]["decided"] > 0
    lines = err.decode().splitlines()
    out_of_order = [line for line in lines if "PROVIDER OUTAGE" in line]
    after = [line for line in lines[lines.index(out_of_order[-1]) + 2 :] if "  AI " in line]
    assert any("unavailable" in line for line in out_of_order)
    assert any("native 0/s" in line and "AI 0/s" not in line for line in after)
    assert not (tmp_path / "stack.json").exists()


async def test_an_interrupted_demo_still_sums_up(url: str, tmp_path: Path) -> None:
    process = await demo(
        "--url", url, "--seconds", "600", "--worlds", "1", "--picture", str(tmp_path / "w.png")
    )
    assert process.stdout is not None
    lines = [await asyncio.wait_for(process.stdout.readline(), 60) for _ in range(2)]
    assert lines[0] == "making islands, 1 …\n".encode()
    assert lines[1].startswith(b"  1 s  AI ")
    process.send_signal(signal.SIGINT)
    out, err = await finished(process, 30)
    assert (process.returncode, err) == (0, b"")
    assert b"Muster demo: summary" in out
    assert (tmp_path / "w.png").exists()


async def test_a_platform_that_cannot_start_is_one_readable_line(tmp_path: Path) -> None:
    held = DataDirectory.open(tmp_path)
    try:
        process = await demo("--seconds", "1", "--worlds", "1", "--data-dir", str(tmp_path))
        out, err = await finished(process, 60)
    finally:
        held.close()
    assert (process.returncode, out) == (1, b"starting the platform \xe2\x80\xa6\n")
    expected = f"--data-dir {tmp_path}: process {os.getpid()} runs on it already\n"
    assert err.decode() == f"muster: the platform did not start: {expected}"
    assert (tmp_path / "up.log").read_text() == f"muster: {expected}"


def named(lock: Path) -> str:
    return lock.read_text().strip() if lock.exists() else ""


async def holder(lock: Path) -> int:
    """The process that a data directory's lock names, once there is one."""
    while True:
        if pid := named(lock):
            return int(pid)
        await asyncio.sleep(0.02)


async def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    starting = asyncio.create_task(start_service(tmp_path, 0, os.environ))
    pid = await asyncio.wait_for(holder(tmp_path / "lock"), 30)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_data_directory_that_cannot_be_made_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"--data-dir .*file/d: Not a directory"):
        await start_service(tmp_path / "file" / "d", 0, os.environ)


async def test_inner_addresses_are_of_the_platform_in_question_only(tmp_path: Path) -> None:
    here, nowhere = "http://127.0.0.1:1", Addresses()
    assert read_addresses(tmp_path, here) == nowhere
    tell(
        tmp_path, here, "http://127.0.0.1:2",
        **{"worker-1": Process(5, "http://127.0.0.1:3"), "gateway-1": Process(6, "http://127.0.0.1:4"),
           "celery-worker": Process(7)},
    )  # fmt: skip
    assert read_addresses(tmp_path, here + "/") == Addresses(
        "http://127.0.0.1:2", ("http://127.0.0.1:3/metrics",)
    )
    assert read_addresses(tmp_path, "http://127.0.0.1:9") == nowhere


async def test_a_program_that_is_missing_is_a_service_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ServiceError, match="missing"):
        await start_service(tmp_path, 0, os.environ)
