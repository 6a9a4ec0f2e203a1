"""One platform that the fault tests share: what they break, and what they look at. Each leaves it working."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from tests.game_load import Game
from tests.stack import Up, ups
from tests.waiting import eventually

SLOTS = 4  # provider calls that one worker makes at a time, by default
NO_FAULTS: dict[str, object] = {
    "latency_ms": 0,
    "error_rates": {},
    "missing_rate": 0,
    "malformed_rate": 0,
    "drop_rate": 0,
}


class Platform:
    """A `muster up` with two gateways, two workers and the provider simulator."""

    def __init__(self, up: Up) -> None:
        self.up = up

    @property
    def url(self) -> str:
        return self.up.url

    @property
    def postgres_url(self) -> str:
        return self.up.stack().postgres_url

    def pid(self, name: str) -> int:
        return self.up.pid(name)

    def pids(self, *names: str) -> dict[str, int]:
        """Of the processes whose names begin with one of `names`; of all without one."""
        processes = self.up.stack().processes
        return {name: process.pid for name, process in processes.items() if name.startswith(names or "")}

    async def provider(self, outage_s: float | None = None, **faults: object) -> None:
        """Change what the simulator does from now on."""
        change: dict[str, object] = {"faults": faults}
        if outage_s is not None:
            change["outage_s"] = outage_s
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{self.up.stack().simulator}/control", json=change) as response,
        ):
            assert response.status == 200, await response.text()

    async def busy_workers(self) -> None:
        """Wait until both workers have a batch in their hands: one alone makes four calls at a time."""

        async def busy() -> bool:
            return int((await self.provider_stats())["in_flight"]) > SLOTS

        await eventually(busy)

    async def provider_stats(self) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"{self.up.stack().simulator}/stats") as response,
        ):
            return dict(await response.json())

    async def metric(self, process: str, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels, of one process."""
        internal = self.up.stack().processes[process].internal
        async with aiohttp.ClientSession() as client, client.get(f"{internal}/metrics") as response:
            text = await response.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    @asynccontextmanager
    async def redis(self, url: str | None = None) -> AsyncIterator["Redis[bytes]"]:
        """A client of the platform's Redis, or of the database at `url`."""
        client: Redis[bytes] = Redis.from_url(url or self.up.stack().redis_url)
        try:
            yield client
        finally:
            await client.aclose()


@contextmanager
def frozen(pid: int, *, below: bool = True) -> Iterator[None]:
    """A process, and all `below` it, stopped meanwhile: sockets stay open and nothing answers."""
    first = psutil.Process(pid)
    processes = [first, *(first.children(recursive=True) if below else [])]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            if process.is_running():  # a number that was given anew is no longer the same process
                process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def fault_up() -> Iterator[Up]:
    """The processes behind `platform`."""
    with ups() as start:
        yield start("--workers", "2", "--gateways", "2").ready()


@pytest.fixture
async def platform(fault_up: Up) -> Platform:
    """The shared platform, with a provider that answers at once, deciding by AI before and after the test."""
    platform = Platform(fault_up)
    await platform.provider(outage_s=0, **NO_FAULTS)
    await _deciding(platform)
    return platform


async def _deciding(platform: Platform) -> None:
    game = Game(platform.url, f"calm-{os.urandom(4).hex()}")

    async def decides() -> bool:
        opened = await game.client.post("/v1/session", game.session)
        return opened.status == 200 and (await game.decide()).sources == {"AI"}

    try:
        await eventually(decides)
    finally:
        await game.client.close()
