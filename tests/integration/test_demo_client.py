"""The demo's client and frame loop against a real HTTP server that judges every message."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from deploy.demo.client import MAX_IN_FLIGHT
from deploy.demo.manifest import CAVES, load_manifest
from deploy.demo.play import FRAME_S, Player, make_player, run_world
from deploy.demo.tally import Tally
from shared.protocol.decide import Entity
from tests.demo_meadow import Meadow
from tests.demo_server import A2GServer, Answer, fallback, first_legal


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
    server.release()
    await runner.cleanup()


@pytest.fixture
def meadow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meadow]:
    return Meadow(monkeypatch)


class _OverError(Exception):
    """Ends the task group of a test."""


@contextlib.asynccontextmanager
async def connected(meadow: Meadow, url: str, tally: Tally | None = None) -> AsyncIterator[Player]:
    """A player with its client; frames are the test's business."""
    try:
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            player = make_player(
                meadow.world,
                http=http,
                url=url,
                manifest=load_manifest(),
                tally=tally or Tally(),
                group=group,
                began_s=time.monotonic(),
            )
            yield player
            await _over()
    except* _OverError:
        pass


@contextlib.asynccontextmanager
async def playing(meadow: Meadow, url: str, tally: Tally | None = None) -> AsyncIterator[Player]:
    """A player whose frame loop runs, with telemetry and reports."""
    async with connected(meadow, url, tally) as player, asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        player.client.start()
        group.create_task(run_world(player, stop, group))
        yield player
        stop.set()


async def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for a state of the game, which has nothing to await."""
    async with asyncio.timeout(timeout_s):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def _over() -> None:
    raise _OverError


async def answered(player: Player, count: int = 1, verdict: str = "ai") -> None:
    await until(lambda: player.tally.totals[verdict] >= count)


async def test_a_session_from_manifest_to_report(meadow: Meadow, server: A2GServer, url: str) -> None:
    zombie, _ = meadow.zombie(36, 32), meadow.zombie(36, 35)
    async with playing(meadow, url) as player:
        telemetry = await server.until("telemetry", 3)
        reports = await server.until("report", 1)
    opened = server.bodies["session"][0]
    assert (opened["a2g"], opened["game"], opened["manifest"]) == ("0.1", "Crafter", load_manifest())
    first = server.bodies["decide"][0]
    assert first["client_id"] == opened["client_id"] == player.client.client_id
    assert (first["epoch"], first["scope"]) == (0, "surface_day")
    asked = {entity["id"]: entity for entity in first["entities"]}
    assert asked[zombie.id]["trigger"] == "player_spotted"
    assert asked[zombie.id]["parent"] == "horde-1"
    assert asked["horde-1"]["trigger"] == "formed"
    rows = {row["id"]: row for row in telemetry[-1]["entities"]}
    assert (telemetry[-1]["mode"], telemetry[-1]["scene"]) == ("ai", "meadow island 1")
    assert set(rows) == {"player-1", *(id_ for id_ in asked if id_ != "horde-1")}
    assert rows[zombie.id]["decision"]["source"] == "AI"
    assert rows[zombie.id]["state"] == rows[zombie.id]["decision"]["action"]
    assert {r["decision_id"] for r in reports} <= {f"d_{n}" for n in range(100)}
    assert reports[0]["status"] in ("executed", "blocked", "expired")
    assert reports[0]["outcome"]["seconds"] >= 0


async def test_a_decision_moves_the_creature(meadow: Meadow, server: A2GServer, url: str) -> None:
    cow = meadow.cow(30, 32)

    def flee(entity: Entity, number: int) -> Answer:
        return first_legal(entity, number) | {"action": "flee"}

    server.choose = flee
    async with playing(meadow, url) as player:
        await answered(player)
        await until(lambda: cow.position[0] <= 27)
    assert player.tally.steered > 0


async def test_an_unknown_session_is_opened_again_with_all_that_was_added(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    cow = meadow.cow(36, 32)
    async with playing(meadow, url) as player:
        await answered(player)
        assert await player.client.add_context(CAVES["scopes"], CAVES["profiles"])
        server.sessions.clear()  # the service restarted
        opened = await server.until("session", 2)
        before = player.tally.totals["ai"]
        player.book.notify(cow.id, "hit")
        await answered(player, before + 1)
    assert opened[1]["client_id"] == opened[0]["client_id"]
    assert set(opened[1]["manifest"]["scopes"]) == {"overworld", "surface_day", "surface_night", "caves"}
    assert "tunnel_warden" in opened[1]["manifest"]["profiles"]


async def test_going_underground_adds_the_scope_before_it_is_used(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    meadow.lay("path")
    meadow.skeleton(35, 32)
    server.choose = lambda entity, number: first_legal(entity, number) | {"action": "hold"}
    async with playing(meadow, url):
        await server.until("context", 1)
        await server.until("telemetry", 2)
        await until(lambda: server.bodies["decide"][-1]["scope"] == "caves")
    assert len(server.bodies["context"]) == 1
    assert server.bodies["decide"][-1]["scope_state"] == {"ground": "path", "lava_near": False}
    assert server.bodies["decide"][-1]["entities"][0]["profile"] == "tunnel_warden"


async def test_no_frame_waits_for_a_silent_service(meadow: Meadow, server: A2GServer, url: str) -> None:
    server.silent = True
    for n in range(40):
        meadow.cow(24 + n % 10, 27 + n // 10)
    async with playing(meadow, url) as player:
        await server.until("decide", MAX_IN_FLIGHT)
        began, frames = time.monotonic(), player.tally.frames
        await asyncio.sleep(12 * FRAME_S)
        played = player.tally.frames - frames
    assert played >= 0.7 * (time.monotonic() - began) / FRAME_S
    assert server.peak_in_flight == len(server.bodies["decide"]) == MAX_IN_FLIGHT
    assert [len(body["entities"]) for body in server.bodies["decide"]] == [16, 16]
    assert (player.tally.steered, player.tally.decided) == (0, 0)


async def test_too_many_requests_are_not_repeated_before_retry_after(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    server.orders["decide"].append((429, {"Retry-After": "1"}))
    meadow.cow(36, 32)
    async with connected(meadow, url) as player:
        player.frame(time.monotonic())
        async with asyncio.timeout(5):
            while not player.tally.totals["no_reply"]:
                player.frame(time.monotonic())
                await asyncio.sleep(0.01)
        refused_s = time.monotonic()
        async with asyncio.timeout(5):
            while len(server.bodies["decide"]) < 2:
                for track in player.book.tracks.values():
                    track.trigger = "hit"
                player.client.pump(time.monotonic())
                await asyncio.sleep(0.01)
    assert 0.9 <= time.monotonic() - refused_s < 2.0
    assert player.tally.faults == {"decide: 429": 1}


async def test_forbidden_is_final(meadow: Meadow, server: A2GServer, url: str) -> None:
    server.orders["session"].append((403, {}))
    meadow.cow(36, 32)
    async with connected(meadow, url) as player:
        for _ in range(30):
            player.client.pump(time.monotonic())
            await asyncio.sleep(0.02)
    assert len(server.bodies["session"]) == 1
    assert player.tally.faults == {"session: 403": 1}


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_any_other_status_is_no_decision_and_is_tried_again(
    meadow: Meadow, server: A2GServer, url: str, status: int
) -> None:
    server.orders["decide"].append((status, {}))
    meadow.zombie(36, 32)
    async with playing(meadow, url) as player:
        await answered(player, verdict="no_reply")
        await answered(player)
    assert player.tally.faults == {f"decide: {status}": 1}
    assert len(server.bodies["session"]) == 1


async def test_native_ai_plays_while_nobody_listens(meadow: Meadow) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        meadow.zombie(36, 32)
        async with playing(meadow, url) as player:
            await until(lambda: player.tally.faults["session: no reply"] >= 2)
    assert player.tally.steered == 0
    assert player.tally.native > 0


async def test_a_fallback_leaves_the_creature_to_its_native_ai(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    server.choose = fallback
    meadow.zombie(36, 32)
    async with playing(meadow, url) as player:
        await answered(player, verdict="unavailable")
    assert (player.tally.steered, player.tally.decided) == (0, 0)


async def test_what_was_not_offered_is_not_executed(meadow: Meadow, server: A2GServer, url: str) -> None:
    server.choose = lambda entity, number: first_legal(entity, number) | {"action": "attack"}
    meadow.zombie(38, 32)
    async with connected(meadow, url) as player:
        async with asyncio.timeout(5):
            while not player.tally.totals["illegal"]:
                player.frame(time.monotonic())
                await asyncio.sleep(0.01)
    assert player.tally.steered == 0


async def test_a_reply_for_another_epoch_is_dropped(meadow: Meadow, server: A2GServer, url: str) -> None:
    server.epoch_shift = 1
    meadow.zombie(36, 32)
    async with playing(meadow, url) as player:
        await answered(player, verdict="stale")
    assert player.tally.steered == 0


async def test_the_players_death_begins_a_new_scene_and_epoch(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    meadow.zombie(36, 32)
    async with playing(meadow, url) as player:
        await answered(player)
        server.silent = True
        player.book.notify(next(iter(player.book.tracks)), "hit")
        before = len(server.bodies["decide"])
        await server.until("decide", before + 1)
        meadow.world.player.health = 0
        await until(lambda: player.book.epoch == 1)
        server.release()
        await answered(player, verdict="stale")
        meadow.cow(38, 32)
        asked: dict[str, Any] = {}
        async with asyncio.timeout(10):
            while asked.get("epoch") != 1:
                asked = server.bodies["decide"][-1]
                await asyncio.sleep(0.02)
        snapshots = len(server.bodies["telemetry"])
        await server.until("telemetry", snapshots + 1)
    assert server.bodies["telemetry"][-1]["scene"] == "meadow island 2"
    assert "player-2" in {row["id"] for row in server.bodies["telemetry"][-1]["entities"]}


async def test_questions_are_gathered_before_they_are_sent(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    async with connected(meadow, url) as player:
        player.client.pump(100.0)
        await until(lambda: player.client.open)
        for now_s, asked in ((101.0, True), (101.1, False), (101.2, True)):
            cow = meadow.cow(36, 32 + len(meadow.world.creatures))
            player.book.track(player.adapter.entities(), now_s)
            player.client.pump(now_s)
            assert player.book.tracks[cow.id].pending is asked
        await answered(player, 3)
    assert [len(body["entities"]) for body in server.bodies["decide"]] == [1, 2]


async def test_what_the_game_refuses_is_reported_as_blocked(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    zombie = meadow.zombie(40, 32)
    async with connected(meadow, url) as player:
        player.client.start()
        player.frame(time.monotonic())
        await until(lambda: player.client.open)
        player.frame(time.monotonic())
        await answered(player)
        meadow.world.engine.move(zombie.body, (45, 32))  # thirteen cells: too far to chase
        player.frame(time.monotonic())
        reports = await server.until("report", 1)
    assert [(report["action"], report["status"]) for report in reports] == [("chase", "blocked")]


async def test_between_two_islands_telemetry_goes_on_and_names_nobody(
    meadow: Meadow, server: A2GServer, url: str
) -> None:
    meadow.zombie(40, 32)
    async with connected(meadow, url) as player:
        player.client.pump(time.monotonic())
        await until(lambda: player.client.open)
        player.client.paused = True
        player.client.start()
        snapshots = await server.until("telemetry", 1)
    assert (snapshots[0]["paused"], snapshots[0]["entities"]) == (True, [])
