"""What a demo shows: live picture, plain lines, summary, provider figures, PNG."""

import asyncio
import io
import json
import time
from pathlib import Path

import aiohttp
import pytest
from PIL import Image
from prometheus_client import generate_latest
from rich.console import Console

from deploy.demo import picture, view
from deploy.demo.decisions import Book
from deploy.demo.events import EventWatch
from deploy.demo.manifest import load_manifest
from deploy.demo.play import Player, make_player
from deploy.demo.provider import Spend, spend_of_metrics
from deploy.demo.summary import as_json, as_table, summarise
from deploy.demo.tally import VERDICTS, Tally, percentiles
from deploy.demo.wire import DecisionReply
from shared import metric_defs
from shared.metrics import Metrics
from tests.demo_meadow import Meadow

WIDTH, HEIGHT = 100, 30


@pytest.fixture
def meadow(monkeypatch: pytest.MonkeyPatch) -> Meadow:
    return Meadow(monkeypatch)


@pytest.fixture
async def player(meadow: Meadow) -> Player:
    """A world with a decided zombie and an undecided cow; its client never sends anything."""
    zombie, _ = meadow.zombie(36, 32), meadow.cow(30, 32)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        player = make_player(
            meadow.world, http=http, url="http://127.0.0.1:9", manifest=load_manifest(), tally=Tally(),
            group=group, began_s=time.monotonic(),
        )  # fmt: skip
    player.adapter = meadow.adapter
    player.book = Book({}, meadow.adapter.observe, meadow.adapter.world_state)
    player.watch = EventWatch()
    player.book.track(meadow.adapter.entities(), 0.0)
    player.book.notify(zombie.id, "player_spotted")
    asked = player.book.ask({zombie.id: ["chase", "hold"]}, 0.0)
    reply = DecisionReply(zombie.id, "AI", 6000, "chase", "d_1", confidence=0.75, cached=True)
    player.tally.answered(player.book.answer(asked, 0, [reply], 0.1), 12.0, 0.1)
    return player


def moment(player: Player, now_s: float = 1.0, **more: object) -> view.Moment:
    return view.Moment(**{
        "now_s": now_s, "length_s": 60.0, "url": "http://127.0.0.1:8787", "simulated": True, "outage": False,
        "tally": player.tally, "players": [player], "spend": Spend(10, 25, 5000, 210_000),
        "rates": Spend(2, 5, 1000, 42_000), **more,
    })  # fmt: skip


def shown(renderable: object) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=WIDTH, height=HEIGHT, color_system=None).print(renderable)
    return [line.rstrip() for line in out.getvalue().splitlines()]


async def test_the_live_view_says_who_decides_and_on_what(player: Player) -> None:
    text = "\n".join(shown(view.render(moment(player), HEIGHT)))
    for expected in (
        "provider simulator, not from a model",
        "cache share",
        "100%",
        "12 / 12 ms",
        "10 (2/s)",
        "2.5",
        "5,000 (1,000/s)",
        "$0.000210",
        "dist 4, health 1, player_spotted",
        "chase 0.75 c",
        "native",
    ):
        assert expected in text


async def test_the_live_view_fits_its_terminal_with_everything_in_it(player: Player) -> None:
    for verdict in VERDICTS:
        player.tally.answered([verdict], 1.0, 0.5)
    lines = shown(view.render(moment(player, outage=True, players=[player] * 6), HEIGHT))
    assert len(lines) <= HEIGHT
    assert max(len(line) for line in lines) <= WIDTH


async def test_a_plain_line_tells_the_last_second(player: Player) -> None:
    player.tally.answered(["ai", "cached", "unavailable", "unavailable"], 30.0, 1.5)
    assert view.plain_line(moment(player, now_s=2.0, outage=True)) == (
        "  2 s  AI 2/s (1 cached)  native 2/s (unavailable 2)  p50 12 p99 30 ms  calls 2/s"
        "  questions/call 2.5  tokens 1,000/s  cost $0.000210  PROVIDER OUTAGE"
    )
    assert "calls –/s  questions/call –  tokens –/s  cost –" in view.plain_line(
        moment(player, now_s=2.0, spend=None, rates=None)
    )


async def test_the_summary_for_people_and_for_programs(player: Player) -> None:
    player.tally.answered(["ai", "busy"], 20.0, 1.5)
    summary = summarise(
        seconds=10.0, players=[player], tally=player.tally, spend=Spend(4, 10, 2000, None), simulated=True,
        picture="world.png",
    )  # fmt: skip
    figures = json.loads(json.dumps(as_json(summary)))
    assert figures["decisions"] == dict.fromkeys(VERDICTS, 0) | {"ai": 1, "cached": 1, "busy": 1}
    assert (figures["decided"], figures["native"], figures["cache_share"]) == (2, 1, 0.5)
    assert figures["latency_ms"] == {"p50": 12.0, "p99": 20.0}
    assert figures["provider"] == {"calls": 4, "questions": 10, "tokens": 2000, "cost_nanousd": None}
    text = "\n".join(shown(as_table(summary)))
    assert "FALLBACK, busy" in text
    assert "2 (0.2 decisions/s), 50% from the cache" in text
    assert "world.png" in text


async def test_the_picture_is_a_png_that_leaves_the_world_as_it_was(player: Player, tmp_path: Path) -> None:
    player.world.engine.daylight = 0.1
    picture.draw(player, tmp_path / "new" / "world.png")
    with Image.open(tmp_path / "new" / "world.png") as image:
        assert (image.format, image.size) == ("PNG", (1000, 600))
    assert player.world.engine.daylight == 0.1


def test_provider_figures_are_summed_over_workers_and_outcomes() -> None:
    metrics = Metrics()
    for definition, labels, value in (
        (metric_defs.PROVIDER_CALLS, ("main", "ok"), 7),
        (metric_defs.PROVIDER_CALLS, ("main", "timeout"), 1),
        (metric_defs.PROVIDER_QUESTIONS, ("main",), 20),
        (metric_defs.PROVIDER_TOKENS, ("main", "input"), 900),
        (metric_defs.PROVIDER_TOKENS, ("main", "output"), 100),
        (metric_defs.PROVIDER_COST, ("main",), 37_800),
        (metric_defs.LATE_ANSWERS, (), 5),
    ):
        metrics.counter(definition, *labels).inc(value)
    page = generate_latest(metrics.registry).decode()
    assert spend_of_metrics([page, page]) == Spend(16, 40, 2000, 75_600)


def test_a_counter_that_began_anew_counts_from_its_own_zero() -> None:
    assert Spend(3, 9, 100, 5).since(Spend(10, 5, 50, 3)) == Spend(3, 4, 50, 2)
    assert Spend(3, 9, 100).since(Spend(1, 1, 1)) == Spend(2, 8, 99, None)


def test_percentiles_are_of_the_values_themselves() -> None:
    assert percentiles([]) is None
    assert percentiles([5.0]) == (5.0, 5.0)
    assert percentiles([float(n) for n in range(100, 0, -1)]) == (50.0, 99.0)


def test_seconds_without_anything_are_empty() -> None:
    tally = Tally()
    tally.answered(["ai"], 1.0, 2.5)
    assert [second["ai"] for second in tally.per_second(5.0, 4)] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("values", "top", "bars"), [([0, 1, 4, 8], 8, " ▁▄█"), ([1], 100, "▁"), ([0, 0], 0, "  ")]
)
def test_a_sparkline_shows_even_the_smallest(values: list[int], top: int, bars: str) -> None:
    assert view.sparkline(values, top) == bars
