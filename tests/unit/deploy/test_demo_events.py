"""Events begin once, when they begin, and only those that the manifest declares."""

import pytest

from deploy.demo.events import EventWatch
from deploy.demo.manifest import load_manifest
from deploy.demo.worlds import Changes, Creature
from tests.demo_meadow import Meadow


@pytest.fixture
def meadow(monkeypatch: pytest.MonkeyPatch) -> Meadow:
    return Meadow(monkeypatch)


def notice(watch: EventWatch, meadow: Meadow, killed: list[str] | None = None) -> list[tuple[str, str]]:
    changes = Changes(killed=killed or [])
    meadow.adapter.refresh(changes)
    return watch.notice(meadow.adapter, changes)


def place(meadow: Meadow, creature: Creature, x: int, y: int) -> None:
    meadow.world.engine.move(creature.body, (x, y))


def test_coming_into_view_and_coming_close(meadow: Meadow) -> None:
    watch, zombie = EventWatch(), meadow.zombie(44, 32)
    assert notice(watch, meadow) == []
    place(meadow, zombie, 40, 32)
    assert notice(watch, meadow) == [(zombie.id, "player_spotted")]
    assert notice(watch, meadow) == []
    place(meadow, zombie, 34, 32)
    assert notice(watch, meadow) == [(zombie.id, "player_close")]


def test_a_creature_met_in_view_has_spotted_the_player(meadow: Meadow) -> None:
    watch, skeleton, _ = EventWatch(), meadow.skeleton(36, 32), meadow.cow(33, 32)
    assert notice(watch, meadow) == [(skeleton.id, "player_spotted")]


def test_wounds_recovery_and_reloading(meadow: Meadow) -> None:
    watch, zombie, skeleton = EventWatch(), meadow.zombie(33, 32), meadow.skeleton(32, 36)
    zombie.body.cooldown = skeleton.body.reload = 1
    notice(watch, meadow)
    zombie.body.health -= 1
    assert notice(watch, meadow) == [(zombie.id, "hit")]
    zombie.body.cooldown = skeleton.body.reload = 0
    assert notice(watch, meadow) == [(zombie.id, "recovered"), (skeleton.id, "reloaded")]


def test_the_dead_are_mourned_by_their_kind_nearby(meadow: Meadow) -> None:
    watch = EventWatch()
    lost, near, far = meadow.cow(20, 32), meadow.cow(24, 32), meadow.cow(29, 32)
    skeletons = meadow.skeleton(20, 30), meadow.skeleton(21, 30)
    notice(watch, meadow)
    for creature in (lost, skeletons[0]):
        del meadow.world.creatures[creature.id]
    assert notice(watch, meadow, [lost.id, skeletons[0].id]) == [(near.id, "ally_died")]
    assert far.id in meadow.world.creatures


def test_a_horde_forms_grows_loses_and_tells_its_members(meadow: Meadow) -> None:
    watch, one = EventWatch(), meadow.zombie(38, 32)
    notice(watch, meadow)
    two = meadow.zombie(38, 33)
    assert ("horde-1", "formed") in notice(watch, meadow)
    three = meadow.zombie(38, 31)
    assert ("horde-1", "grown") in notice(watch, meadow)
    meadow.adapter.order("press")
    assert notice(watch, meadow) == [(id_, "horde_changed") for id_ in sorted((one.id, two.id, three.id))]
    assert notice(watch, meadow) == []
    del meadow.world.creatures[three.id]
    events = notice(watch, meadow, [three.id])
    assert events == [(one.id, "ally_died"), (two.id, "ally_died"), ("horde-1", "member_lost")]


def test_every_event_that_the_watch_can_name_is_declared() -> None:
    declared = {name: set(kind.get("events", {})) for name, kind in load_manifest()["entity_types"].items()}
    assert declared == {
        "zombie": {"player_spotted", "player_close", "recovered", "hit", "ally_died", "horde_changed"},
        "skeleton": {"player_spotted", "player_close", "reloaded", "hit"},
        "cow": {"player_close", "hit", "ally_died"},
        "horde": {"formed", "member_lost", "grown"},
        "player": set(),
    }
