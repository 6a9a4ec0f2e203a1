"""The exact texts of the situation context, as they stand in model input."""

from typing import Any

import msgspec
import pytest

from shared.protocol.manifest import Manifest, parse_manifest
from shared.protocol.messages import TelemetryRow
from shared.protocol.situation import (
    EMPTY_SNAPSHOT,
    AskedRow,
    LastDecision,
    ParentDecision,
    Situation,
    pack_snapshot,
    parent_text,
    snapshot_ids,
    unpack_snapshot,
)

MANIFEST: Manifest = parse_manifest(
    {
        "entity_types": {
            "bee": {"fields": {"hp": "number"}, "actions": {"idle": "Stay"}, "perception_radius": 10},
            'say "player"': {"fields": {"hp": "number"}, "perception_radius": 20},
            "chest": {},
            "squad": {"actions": {"hold": "Hold"}},
        }
    }
).manifest
PLAYER = 'say "player"'


def row(entity_id: str, entity_type: str = "bee", **known: Any) -> TelemetryRow:
    blank = {"name": "", "state": "", "pending": False, "fields": {}, "decision": None, "position": None}
    return TelemetryRow(id=entity_id, type=entity_type, **{**blank, "parent": None, "profile": None, **known})


def situation(*rows: TelemetryRow, **more: Any) -> Situation:
    snapshot = unpack_snapshot(pack_snapshot("L1", rows, MANIFEST))
    return Situation(snapshot, MANIFEST, more.pop("last", {}), **more)


def test_a_snapshot_survives_packing() -> None:
    rows = [row("a", position=(1.0, 2.0)), row("p", PLAYER, position=(1.0, 2.0, 3.0), parent="a")]
    snapshot = unpack_snapshot(pack_snapshot("L1", rows, MANIFEST))
    assert snapshot.scene == "L1"
    assert [(r.id, r.type, r.position, r.parent, r.action) for r in snapshot.rows] == [
        ("a", "bee", (1.0, 2.0, 0.0), None, None),
        ("p", PLAYER, (1.0, 2.0, 3.0), "a", None),
    ]


def test_ids_and_types_in_order() -> None:
    assert snapshot_ids([row("b"), row("a", "chest")]) == [("b", "bee"), ("a", "chest")]


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x92\xa1x", pack_snapshot("L1", [], MANIFEST)[:-1]])
def test_bytes_that_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        unpack_snapshot(data)


def test_nothing_to_say() -> None:
    empty = Situation(EMPTY_SNAPSHOT, MANIFEST, {})
    assert empty.population_text() == ""
    assert empty.nearby_text("a", "bee", (0, 0)) == ""
    assert empty.observed_entities_text() == ""
    assert empty.members_text("s", None) == ""
    assert parent_text(None) == ""


def test_population() -> None:
    text = situation(row("a"), row("b"), row("t", "chest"), seen={"bee": 5, "squad": 1}).population_text()
    assert text == (
        '{"bee":{"alive":2,"seen":5,"gone":3},"chest":{"alive":1,"seen":1,"gone":0},'
        '"squad":{"alive":0,"seen":1,"gone":1}}'
    )


def test_population_never_says_fewer_were_seen_than_are_alive() -> None:
    text = situation(row("a"), row("b"), seen={"bee": 1}).population_text()
    assert text == '{"bee":{"alive":2,"seen":2,"gone":0}}'


def test_nearby() -> None:
    known = situation(
        row("a", position=(0.0, 0.0)),
        row('q"', PLAYER, state="RUN\x07", fields={"hp": 0.33333, "name": "x"}, position=(1.0, 1.0)),
        row("b", state="FLEE", decision={"source": "AI", "action": "flee"}, position=(0.0, 3.0)),
        row("c", decision={"source": "FALLBACK", "action": 7}, position=(0.0, 4.0)),
    )
    assert known.nearby_text("a", "bee", None) == (
        '[{"id":"q\\"","type":"say \\"player\\"","distance":1.414,"state":"RUN",'
        '"fields":{"hp":0.3333,"name":"x"}},'
        '{"id":"b","type":"bee","distance":3,"state":"FLEE","action":"flee","fields":{}},'
        '{"id":"c","type":"bee","distance":4,"fields":{}}]'
    )


def test_the_services_own_decision_goes_before_the_games_word() -> None:
    told = row("b", decision={"action": "flee"}, position=(1.0, 0.0))
    asker = row("a", position=(0.0, 0.0))
    own = situation(asker, told, last={"b": LastDecision("bee", "idle", 0)})
    assert '"action":"idle"' in own.nearby_text("a", "bee", None)
    reused = situation(asker, told, last={"b": LastDecision("squad", "hold", 0)})
    assert '"action":"flee"' in reused.nearby_text("a", "bee", None)


def test_an_entity_outside_the_snapshot_sees_it_from_where_it_asks() -> None:
    known = situation(row("b", position=(1.0, 0.0)))
    assert known.nearby_text("new", "bee", None) == ""
    assert known.nearby_text("new", "bee", (4, 4)) == '[{"id":"b","type":"bee","distance":5,"fields":{}}]'


def test_ties_keep_the_snapshots_order() -> None:
    ids = ["g", "b", "f", "a", "e", "c", "d"]
    places = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0), (0.5, 0.0)]
    known = situation(*[row(i, position=place) for i, place in zip(ids, places, strict=True)])
    found = msgspec.json.decode(known.nearby_text("x", "bee", (0, 0)))
    assert [entry["id"] for entry in found] == ["d", "g", "b", "f", "a"]


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_crowd_at_one_distance_hides_nobody_who_is_as_near(side: float) -> None:
    level = row("level", position=(side * 5, 0.0))
    five = [row(f"five{i}", position=(side * 3, 4.0)) for i in range(5)]
    crowd = [row(f"crowd{i}", position=(side * 3, 9.0)) for i in range(19)]
    found = msgspec.json.decode(situation(level, *five, *crowd).nearby_text("x", "bee", (0, 0)))
    assert [entry["id"] for entry in found] == ["level", "five0", "five1", "five2", "five3"]


def test_a_distance_that_rounds_to_the_radius_is_within() -> None:
    known = situation(row("b", position=(1.66, 0.0)))  # 11.66 - 10 is a little more than 1.66
    assert '"distance":10,' in known.nearby_text("x", "bee", (11.66, 0))


def test_distances_beyond_a_double_are_not_near() -> None:
    far = situation(row("a", position=(1.7e308, 0.0)), row("b", position=(-1.7e308, 0.0)))
    assert far.nearby_text("a", "bee", None) == ""


def test_observed_entities() -> None:
    known = situation(
        row("p", PLAYER, state="RUN", fields={"hp": 1}, position=(0.0, 0.0)),
        row("t", "chest"),
        row("a", position=(0.0, 20.0)),
        row("b", position=(0.0, 20.1)),
        row("c", "squad", position=(1.0, 0.0)),
        row("far", PLAYER, position=(1000.0, 0.0)),
        row("nowhere", PLAYER),
    )
    assert known.observed_entities_text() == (
        '[{"id":"p","type":"say \\"player\\"","state":"RUN","fields":{"hp":1},'
        '"nearby_counts":{"bee":1,"squad":1}},'
        '{"id":"t","type":"chest","fields":{}},'
        '{"id":"far","type":"say \\"player\\"","fields":{},"nearby_counts":{}},'
        '{"id":"nowhere","type":"say \\"player\\"","fields":{}}]'
    )
    assert known.observed_entities_text() is known.observed_entities_text()


def member_ids(text: str) -> list[str]:
    return [member["id"] for member in msgspec.json.decode(text)]


def test_members() -> None:
    known = situation(
        row("m1", state="IDLE", fields={"hp": 1}, parent="s", decision={"action": "idle"}),
        row("m2", parent="s", position=(3.0, 0.0)),
        row("m3", parent="other"),
        row("m4"),
        asked=[
            AskedRow("m2", "bee", (9.0, 0.0), "s", '{"hp":0.5}'),
            AskedRow("m5", "bee", None, "s", '{"hp":0.2}'),
        ],
        last={"m5": LastDecision("bee", "idle", 0)},
    )
    assert known.members_text("s", (0.0, 0.0)) == (
        '[{"id":"m2","type":"bee","fields":{"hp":0.5}},'
        '{"id":"m1","type":"bee","state":"IDLE","action":"idle","fields":{"hp":1}},'
        '{"id":"m5","type":"bee","action":"idle","fields":{"hp":0.2}}]'
    )
    assert member_ids(known.members_text("s", None)) == ["m1", "m2", "m5"]
    assert known.members_text("m4", None) == ""


def test_what_a_request_leaves_out_is_as_telemetry_had_it() -> None:
    rows = [row("m1", parent="s", position=(5.0, 0.0)), row("m2", parent="s", position=(1.0, 0.0))]
    known = situation(*rows, asked=[AskedRow("m1", "bee", None, None, "{}")])
    assert member_ids(known.members_text("s", (0, 0))) == ["m2", "m1"]


def test_a_request_moves_a_member_to_another_parent() -> None:
    known = situation(row("m1", parent="s"), asked=[AskedRow("m1", "bee", None, "t", "{}")])
    assert known.members_text("s", None) == ""
    assert member_ids(known.members_text("t", None)) == ["m1"]


def test_a_parent_is_where_it_was_last_known() -> None:
    rows = [row("m1", parent="s", position=(0.0, 0.0)), row("m2", parent="s", position=(9.0, 0.0))]
    boss = row("s", "squad", position=(8.0, 0.0))
    assert member_ids(situation(*rows, boss).members_text("s", None)) == ["m2", "m1"]
    moved = situation(*rows, boss, asked=[AskedRow("s", "squad", (1.0, 0.0), None, "{}")])
    assert member_ids(moved.members_text("s", None)) == ["m1", "m2"]


def test_an_id_that_came_back_as_something_else_keeps_nothing_of_its_old_self() -> None:
    known = situation(
        row("m1", state="FLY", parent="s", decision={"action": "flee"}),
        asked=[AskedRow("m1", "squad", None, "s", "{}")],
    )
    assert known.members_text("s", None) == '[{"id":"m1","type":"squad","fields":{}}]'


def test_at_most_eight_members() -> None:
    known = situation(*[row(f"m{i}", parent="s", position=(10.0 - i, 0.0)) for i in range(10)])
    assert member_ids(known.members_text("s", (0, 0))) == [f"m{i}" for i in range(9, 1, -1)]


def test_parent() -> None:
    parent = ParentDecision("s1", "squad", "flank_left", 'Go "left"', 3.14159)
    assert parent_text(parent) == (
        '{"id":"s1","type":"squad","action":"flank_left","label":"Go \\"left\\"","seconds_ago":3.1}'
    )
    assert parent_text(parent._replace(seconds_ago=-0.4)).endswith('"seconds_ago":0}')


def test_a_snapshot_of_a_replaced_manifest_does_no_harm() -> None:
    other = parse_manifest({"entity_types": {"ghost": {"actions": {"haunt": "Haunt"}}}}).manifest
    snapshot = unpack_snapshot(pack_snapshot("L1", [row("p", PLAYER, position=(0.0, 0.0))], MANIFEST))
    known = Situation(snapshot, other, {})
    assert known.population_text() == ""
    assert known.observed_entities_text() == ""
