"""Postgres away: decisions flow as before, their log waits on disk and arrives exactly once."""

import asyncio
import os
import signal
from statistics import median

import pytest

from tests.decision_ledger import require_complete_log
from tests.fault_platform import Platform, frozen
from tests.game_load import Exchange, playing, require_whole_replies
from tests.waiting import eventually

SLOWER_S = 0.1  # what a noisy machine may add to the median


def spilled_bytes(platform: Platform) -> int:
    """What the log writer keeps on its own disk."""
    folder = platform.up.data_dir / "spill"
    return sum(path.stat().st_size for path in folder.glob("spill-*.seg"))


def made_within(exchanges: list[Exchange], start_s: float, end_s: float) -> list[Exchange]:
    return [one for one in exchanges if start_s <= one.started_s < end_s]


def usual_s(exchanges: list[Exchange]) -> float:
    return median(one.took_s for one in exchanges)


@pytest.mark.parametrize(
    "away_s", [pytest.param(8, id="briefly"), pytest.param(60, id="for a minute", marks=pytest.mark.slow)]
)
async def test_away_and_the_log_writer_killed_meanwhile(platform: Platform, away_s: float) -> None:
    now = asyncio.get_running_loop().time

    async def spilling() -> bool:
        return spilled_bytes(platform) > 0

    async def replayed() -> bool:
        return spilled_bytes(platform) == 0

    async with playing(platform.url, f"postgres-{away_s}", per_s=4) as load:
        before_s = now()
        await load.answered(48)
        with frozen(platform.pid("postgres")):
            since_s = now()
            await eventually(spilling)
            writer = platform.pid("scheduler")
            os.kill(writer, signal.SIGKILL)
            await asyncio.sleep(since_s + away_s - now())
            until_s = now()
            assert spilled_bytes(platform) > 0
        await load.answered(24)
    assert platform.pid("scheduler") != writer
    require_whole_replies(load.exchanges)
    assert set().union(*(one.sources for one in load.exchanges)) == {"AI"}
    meanwhile = made_within(load.exchanges, since_s, until_s)
    assert len(meanwhile) > 20 * away_s
    assert usual_s(meanwhile) < 3 * usual_s(made_within(load.exchanges, before_s, since_s)) + SLOWER_S
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []
    await eventually(replayed)


async def test_killed_it_costs_no_row(platform: Platform) -> None:
    async with playing(platform.url, "postgres-killed") as load:
        os.kill(platform.pid("postgres"), signal.SIGKILL)
        await load.answered(72)
    require_whole_replies(load.exchanges)
    assert set().union(*(one.sources for one in load.exchanges)) == {"AI"}
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []


async def test_the_log_writer_killed_with_rows_in_its_hands_loses_none(platform: Platform) -> None:
    async with playing(platform.url, "writer-killed") as load:
        with frozen(platform.pid("postgres")):
            await load.answered(36)  # a second, of the six that it waits for the commit
            os.kill(platform.pid("scheduler"), signal.SIGKILL)
            await load.answered(12)
        await load.answered(12)
    require_whole_replies(load.exchanges)
    assert await require_complete_log(platform.postgres_url, load.exchanges) == []
