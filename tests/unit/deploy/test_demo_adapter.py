"""What Crafter's creatures see, may do and do: exactly the manifest's fields, exactly Crafter's rules."""

import json
from typing import Any

import pytest

from deploy.demo.adapter import Adapter
from deploy.demo.manifest import CAVES, load_manifest
from deploy.demo.worlds import Changes, CrafterWorld
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.decide import DecideRequest
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import decode_telemetry
from tests.demo_meadow import Meadow


@pytest.fixture
def meadow(monkeypatch: pytest.MonkeyPatch) -> Meadow:
    return Meadow(monkeypatch)


class Judge:
    """The protocol's own rules for messages with the demo's manifest, caves included."""

    def __init__(self) -> None:
        self.parsed = parse_manifest(load_manifest())
        manifest = self.parsed.manifest
        self.compiled = CompiledManifest(manifest)
        contexts = self.parsed.contexts.updated(CAVES["scopes"], CAVES["profiles"], manifest)
        self.contexts = CompiledContexts(contexts, manifest)

    def decide(self, adapter: Adapter, ids: list[str]) -> DecideRequest:
        types = adapter.entities()
        scope, state = adapter.scope()
        entities = [
            {
                "id": id_,
                "type": types[id_],
                "observation": adapter.observe(id_),
                "legal_actions": adapter.legal_actions(id_),
                **adapter.links(id_),
            }
            for id_ in ids
        ]
        body: dict[str, Any] = {
            "client_id": "c", "epoch": 0, "world": adapter.world_state(), "scope": scope,
            "scope_state": state, "entities": entities,
        }  # fmt: skip
        return self.compiled.decode_decide(json.dumps(body).encode(), self.contexts)


def test_the_manifest_is_valid_without_a_warning() -> None:
    assert parse_manifest(load_manifest()).warnings == ()


def judge_snapshot(judge: Judge, adapter: Adapter) -> int:
    """Refuses what the protocol refuses; returns the number of rows."""
    snapshot = {
        "client_id": "c", "mode": "ai", "paused": False, "scene": adapter.world.scene, "world": {},
        "entities": adapter.telemetry_rows(),
    }  # fmt: skip
    return len(decode_telemetry(json.dumps(snapshot).encode(), judge.parsed.manifest).rows)


def test_whatever_happens_in_a_world_its_messages_are_what_the_manifest_declares() -> None:
    judge, world = Judge(), CrafterWorld("w", seed=8)
    world.generate()
    adapter = Adapter(world)
    adapter.caves_known = True
    judged = 0
    for frame in range(300):
        adapter.refresh(world.step())
        ids = list(adapter.entities())[:16]
        if frame % 3 == 0 and ids:
            judged += len(judge.decide(adapter, ids).entities)
            assert judge_snapshot(judge, adapter) == len(world.creatures) + 1
        if world.over:
            world.abandon()
            world.generate()
            adapter.new_scene()
    assert judged > 100


@pytest.mark.parametrize(
    ("ground", "daylight", "scope"),
    [("grass", 0.8, "surface_day"), ("grass", 0.1, "surface_night"), ("path", 0.8, "caves")],
)
def test_every_type_scope_and_profile_is_what_the_manifest_declares(
    meadow: Meadow, ground: str, daylight: float, scope: str
) -> None:
    judge, adapter = Judge(), meadow.adapter
    meadow.lay(ground)
    meadow.world.engine.daylight = daylight
    adapter.caves_known = True
    for n, put in enumerate([meadow.zombie, meadow.zombie, meadow.skeleton, meadow.cow, meadow.cow]):
        put(30 + n, 34)
    request = judge.decide(adapter, list(adapter.entities()))
    assert request.scope == scope
    assert [(entity.entity_type.name, entity.profile, entity.parent) for entity in request.entities] == [
        ("zombie", "captain", "horde-1"),
        ("zombie", None, "horde-1"),
        ("skeleton", "tunnel_warden" if scope == "caves" else None, None),
        ("cow", "lead_cow", None),
        ("cow", None, None),
        ("horde", None, None),
    ]
    assert judge_snapshot(judge, adapter) == 6


def test_a_zombie_sees_what_is_there(meadow: Meadow) -> None:
    zombie = meadow.zombie(29, 33)
    other = meadow.zombie(27, 33)
    zombie.body.health = 2
    assert meadow.adapter.observe(zombie.id) == {
        "health": 0.4,
        "distance": 4,
        "to_player": [3, -1],
        "sees_player": True,
        "recovered": True,
        "company": 1,
        "prey": "player-1",
        "doing": "native",
    }
    assert meadow.adapter.links(zombie.id) == {
        "position": [29, 33],
        "profile": "captain",
        "parent": "horde-1",
    }
    assert meadow.adapter.links(other.id) == {"position": [27, 33], "parent": "horde-1"}


def test_a_cow_sees_its_four_nearest(meadow: Meadow) -> None:
    cow = meadow.cow(20, 32)
    others = [meadow.cow(20 + n, 32) for n in (1, 2, 3, 4, 5)]
    observed = meadow.adapter.observe(cow.id)
    assert observed is not None
    assert observed["herd"] == [{"id": other.id, "distance": n + 1} for n, other in enumerate(others[:4])]
    assert (observed["player_near"], observed["on_grass"]) == (False, True)


def test_a_creature_that_is_gone_is_neither_seen_nor_asked(meadow: Meadow) -> None:
    assert meadow.adapter.observe("zombie-99") is None
    assert meadow.adapter.legal_actions("zombie-99") == []
    assert meadow.adapter.links("zombie-99") == {}


@pytest.mark.parametrize(
    ("position", "cooldown", "legal"),
    [
        ((33, 32), 0, ["attack", "chase", "retreat", "hold", "wander"]),
        ((33, 32), 3, ["chase", "retreat", "hold", "wander"]),
        ((34, 32), 0, ["chase", "retreat", "hold", "wander"]),
        ((40, 32), 0, ["chase", "retreat", "hold", "wander"]),
        ((41, 32), 0, ["hold", "wander"]),
    ],
)
def test_what_a_lone_zombie_may_do(
    meadow: Meadow, position: tuple[int, int], cooldown: int, legal: list[str]
) -> None:
    zombie = meadow.zombie(*position)
    zombie.body.cooldown = cooldown
    assert meadow.adapter.legal_actions(zombie.id) == legal


def test_only_members_of_a_horde_may_flank(meadow: Meadow) -> None:
    near, second = meadow.zombie(36, 32), meadow.zombie(32, 36)
    far = meadow.zombie(42, 32)
    assert meadow.adapter.horde.members == {near.id, second.id}
    assert "flank" in meadow.adapter.legal_actions(near.id)
    assert "flank" not in meadow.adapter.legal_actions(far.id)


@pytest.mark.parametrize(
    ("position", "reload", "offered"), [((35, 32), 0, True), ((35, 32), 1, False), ((38, 32), 0, False)]
)
def test_a_skeleton_may_shoot_when_loaded_and_in_range(
    meadow: Meadow, position: tuple[int, int], reload: int, offered: bool
) -> None:
    skeleton = meadow.skeleton(*position)
    skeleton.body.reload = reload
    assert ("shoot" in meadow.adapter.legal_actions(skeleton.id)) is offered


def test_no_shot_through_a_wall(meadow: Meadow) -> None:
    skeleton = meadow.skeleton(35, 32)
    meadow.world.engine[34, 32] = "stone"
    assert "shoot" not in meadow.adapter.legal_actions(skeleton.id)


def test_what_a_cow_may_do(meadow: Meadow) -> None:
    cow = meadow.cow(36, 32)
    assert meadow.adapter.legal_actions(cow.id) == ["graze", "wander", "flee"]
    meadow.cow(39, 32)
    meadow.world.engine[36, 32] = "sand"
    assert meadow.adapter.legal_actions(cow.id) == ["wander", "flee", "herd"]


@pytest.mark.parametrize(("sleeping", "health_left"), [(False, 7), (True, 2)])
def test_a_strike_does_crafters_damage_and_starts_the_cooldown(
    meadow: Meadow, sleeping: bool, health_left: int
) -> None:
    zombie = meadow.zombie(33, 32)
    meadow.world.player.sleeping = sleeping
    assert meadow.adapter.execute(zombie, "attack")
    assert (meadow.world.player.health, zombie.body.cooldown) == (health_left, 5)
    assert meadow.adapter.execute(zombie, "attack")
    assert (meadow.world.player.health, zombie.body.cooldown) == (health_left, 4)


def test_only_an_attack_strikes(meadow: Meadow) -> None:
    zombie = meadow.zombie(33, 32)
    for action in ("chase", "hold"):
        assert meadow.adapter.execute(zombie, action)
    assert meadow.world.player.health == 9


@pytest.mark.parametrize(
    ("action", "lands"),
    [
        ("chase", (34, 33)),
        ("flank", (35, 32)),
        ("retreat", (36, 33)),
        ("hold", (35, 33)),
        ("attack", (35, 33)),
    ],
)
def test_where_a_zombie_goes(meadow: Meadow, action: str, lands: tuple[int, int]) -> None:
    zombie = meadow.zombie(35, 33)
    assert meadow.adapter.execute(zombie, action) is (action != "attack")
    assert zombie.position == lands
    assert meadow.adapter.observe(zombie.id)["doing"] == ("native" if action == "attack" else action)  # type: ignore[index]


def test_what_the_player_outran_is_blocked(meadow: Meadow) -> None:
    zombie, skeleton, cow = meadow.zombie(45, 32), meadow.skeleton(32, 45), meadow.cow(19, 32)
    refused = [
        (zombie, "chase"),
        (zombie, "flank"),
        (skeleton, "shoot"),
        (skeleton, "advance"),
        (cow, "flee"),
    ]
    assert [meadow.adapter.execute(creature, action) for creature, action in refused] == [False] * 5
    assert not meadow.adapter.execute(cow, "herd")
    assert (zombie.position, skeleton.position, cow.position) == ((45, 32), (32, 45), (19, 32))


def test_a_skeleton_shoots_one_arrow_and_reloads(meadow: Meadow) -> None:
    skeleton = meadow.skeleton(36, 32)
    assert meadow.adapter.execute(skeleton, "shoot")
    assert skeleton.body.reload == 4
    assert meadow.world.engine[35, 32][1].texture == "arrow-left"
    before = len(meadow.world.engine.objects)
    assert meadow.adapter.execute(skeleton, "shoot")
    assert (skeleton.body.reload, len(meadow.world.engine.objects)) == (3, before)


def test_the_wounded_to_death_leave_the_map_whatever_was_decided(meadow: Meadow) -> None:
    zombie = meadow.zombie(38, 32)
    meadow.world.steer = lambda creature: meadow.adapter.execute(creature, "hold")
    zombie.body.health = 0
    assert meadow.step().killed == [zombie.id]
    assert zombie.body.removed


def test_a_steered_creature_does_not_run_its_native_ai(meadow: Meadow) -> None:
    zombie = meadow.zombie(34, 32)
    meadow.world.steer = lambda creature: meadow.adapter.execute(creature, "hold")
    for _ in range(6):
        meadow.step()
    assert zombie.position == (34, 32)
    meadow.world.steer = lambda creature: False
    for _ in range(3):
        meadow.step()
    assert zombie.position != (34, 32)


def test_names_pass_on_when_their_bearer_is_gone(meadow: Meadow) -> None:
    first, second = meadow.zombie(34, 32), meadow.zombie(38, 32)
    assert meadow.adapter.captain == first.id
    del meadow.world.creatures[first.id]
    meadow.adapter.refresh(Changes(killed=[first.id]))
    assert meadow.adapter.captain == second.id


def test_a_horde_of_one_is_none_and_counts_its_dead(meadow: Meadow) -> None:
    first, second, third = meadow.zombie(34, 32), meadow.zombie(36, 32), meadow.zombie(38, 32)
    assert meadow.adapter.observe("horde-1") == {
        "size": 3, "mean_health": 1.0, "nearest": 2, "spread": 4, "lost": 0, "captain": first.id,
    }  # fmt: skip
    third.body.health = 0
    meadow.world.steer = lambda creature: meadow.adapter.execute(creature, "hold")
    meadow.step()
    assert meadow.adapter.observe("horde-1") == {
        "size": 2, "mean_health": 1.0, "nearest": 2, "spread": 2, "lost": 1, "captain": first.id,
    }  # fmt: skip
    second.body.health = 0
    meadow.step()
    assert (meadow.adapter.horde.id, "horde" in meadow.adapter.entities().values()) == (None, False)


@pytest.mark.parametrize(
    ("daylight", "scope", "state"),
    [
        (0.9, "surface_day", {"ground": "grass"}),
        (0.4, "surface_night", {"ground": "grass", "darkness": 1}),
        (0.2, "surface_night", {"ground": "grass", "darkness": 2}),
        (0.1, "surface_night", {"ground": "grass", "darkness": 3}),
    ],
)
def test_the_scope_follows_the_light(
    meadow: Meadow, daylight: float, scope: str, state: dict[str, Any]
) -> None:
    meadow.world.engine.daylight = daylight
    assert meadow.adapter.scope() == (scope, state)


def test_caves_are_a_scope_only_once_the_service_knows_them(meadow: Meadow) -> None:
    meadow.lay("path")
    assert meadow.adapter.scope()[0] == "surface_day"
    meadow.adapter.caves_known = True
    meadow.world.engine[33, 33] = "lava"
    assert meadow.adapter.scope() == ("caves", {"ground": "path", "lava_near": True})


def test_an_abandoned_island_has_nobody_on_it(meadow: Meadow) -> None:
    meadow.zombie(36, 32)
    meadow.world.abandon()
    meadow.world.generate()
    assert meadow.adapter.entities() == {}
    assert meadow.zombie(36, 32).id == "zombie-2"
    assert (meadow.world.scene, meadow.world.player_id) == ("meadow island 2", "player-2")
