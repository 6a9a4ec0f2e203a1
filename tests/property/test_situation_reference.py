"""The situation context equals a plain reading of the rules, for any snapshot (A2G Decide, "What the provider
sees" and "Groups")."""

import json
import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol.fragments import number_text
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import TelemetryRow
from shared.protocol.situation import AskedRow, LastDecision, Situation, pack_snapshot, unpack_snapshot

Place = Sequence[float] | None

RADII = {"bee": 3.0, "hawk": 40.0, "golem": None, "player": 7.5, "chest": None}
OBSERVED = {"player", "chest"}
MANIFEST = parse_manifest(
    {
        "entity_types": {
            name: {"perception_radius": radius, "actions": {} if name in OBSERVED else {"idle": "Stay"}}
            for name, radius in RADII.items()
        }
    }
).manifest

# Few places, so that distances tie and touch the radii; and some anywhere at all.
coordinates = st.one_of(
    st.integers(-6, 6).map(float),
    st.floats(-50, 50),
    st.floats(allow_nan=False, allow_infinity=False),
)
places = st.none() | st.tuples(coordinates, coordinates) | st.tuples(coordinates, coordinates, coordinates)
types = st.sampled_from(list(RADII))
parents = st.sampled_from([None, None, "s", "t"])
columns = st.tuples(st.sampled_from([0.0, 1.0, -2.0, 5.0]), st.integers(-60, 60).map(float))
crowds = st.one_of(
    st.lists(st.tuples(types, columns, parents), min_size=60, max_size=128),
    st.lists(st.tuples(types, places, parents), max_size=20),
    st.lists(st.tuples(types, places, parents), min_size=60, max_size=90),
)
asked_rows = st.lists(st.tuples(st.integers(0, 25), types, places, parents), max_size=16)


def telemetry_row(index: int, entity_type: str, place: Place, parent: str | None) -> TelemetryRow:
    told = {"action": f"told{index}"} if index % 3 == 0 else None
    state = f"S{index}" if index % 2 else ""
    position = None if place is None else tuple(place)
    return TelemetryRow(
        id=f"e{index}",
        type=entity_type,
        name="",
        state=state,
        pending=False,
        fields={"n": index},
        decision=told,
        position=position,
        parent=parent,
        profile=None,
    )


def distance(one: Place, other: Place) -> float:
    assert one is not None
    assert other is not None
    return math.dist((*one, 0.0)[:3], (*other, 0.0)[:3])


def read(text: str) -> list[dict[str, Any]]:
    return json.loads(text) if text else []


class Naive:
    """The rules, one after the other, without any thought of speed."""

    def __init__(
        self, rows: list[TelemetryRow], last: dict[str, LastDecision], asked: list[AskedRow]
    ) -> None:
        self.rows, self.last = rows, last
        self.asked = {row.id: row for row in asked}

    def shown(self, row: TelemetryRow) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": row.id, "type": row.type}
        if row.state:
            entry["state"] = row.state
        return {**entry, **self.action(row.id, row.type, row.decision), "fields": row.fields}

    def action(self, entity_id: str, entity_type: str, told: Any) -> dict[str, str]:
        last = self.last.get(entity_id)
        if last is not None and last.type == entity_type:
            return {"action": last.action}
        return {"action": told["action"]} if told else {}

    def within(self, entity_id: str, place: Place, radius: float) -> list[tuple[float, int]]:
        return sorted(
            (distance(place, row.position), index)
            for index, row in enumerate(self.rows)
            if row.id != entity_id and row.position is not None and distance(place, row.position) <= radius
        )

    def nearby(self, entity_id: str, entity_type: str, place: Place) -> list[dict[str, Any]]:
        radius = RADII[entity_type]
        if place is None:
            place = next((row.position for row in self.rows if row.id == entity_id), None)
        if radius is None or place is None:
            return []
        return [
            {**self.shown(self.rows[index]), "distance": float(number_text(far))}
            for far, index in self.within(entity_id, place, radius)[:5]
        ]

    def observed(self) -> list[dict[str, Any]]:
        entries = []
        for row in self.rows:
            if row.type not in OBSERVED:
                continue
            entry = self.shown(row)
            entry.pop("action", None)
            radius = RADII[row.type]
            if radius is not None and row.position is not None:
                near = [self.rows[index].type for _, index in self.within(row.id, row.position, radius)]
                entry["nearby_counts"] = {name: near.count(name) for name in near}
            entries.append(entry)
        return entries

    def members(self, parent_id: str, place: Place) -> list[dict[str, Any]]:
        seen = {row.id: row for row in self.rows}
        found: list[tuple[Place, dict[str, Any]]] = []
        for entity_id in [*seen, *(name for name in self.asked if name not in seen)]:
            row, asked = seen.get(entity_id), self.asked.get(entity_id)
            parent = (asked and asked.parent) or (row and row.parent)
            if parent != parent_id:
                continue
            position = asked.position if asked and asked.position is not None else row and row.position
            if asked is None:
                assert row is not None
                entry = self.shown(row)
            elif row is not None and row.type == asked.type:
                entry = {**self.shown(row), "fields": json.loads(asked.fields)}
            else:
                entry = {"id": asked.id, "type": asked.type, "fields": json.loads(asked.fields)}
                entry |= self.action(asked.id, asked.type, None)
            found.append((position, entry))
        if place is not None:
            far = [math.inf if position is None else distance(place, position) for position, _ in found]
            found = [found[index] for index in sorted(range(len(found)), key=far.__getitem__)]
        return [entry for _, entry in found[:8]]


@settings(max_examples=150, deadline=None)
@given(crowds, asked_rows, st.sets(st.integers(0, 30), max_size=5), places)
def test_equals_the_naive_reading(
    crowd: list[tuple[str, Place, str | None]],
    asking: list[tuple[int, str, Place, str | None]],
    decided: set[int],
    place: Place,
) -> None:
    rows = [telemetry_row(index, *entity) for index, entity in enumerate(crowd)]
    asked = [
        AskedRow(f"e{index}", name, spot, parent, f'{{"asked":{n}}}')
        for n, (index, name, spot, parent) in enumerate(asking)
    ]
    last = {f"e{index}": LastDecision("bee", f"own{index}", 0) for index in decided}
    naive = Naive(rows, last, asked)
    known = Situation(unpack_snapshot(pack_snapshot("L1", rows, MANIFEST)), MANIFEST, last, asked)

    for row in rows[:16]:
        assert read(known.nearby_text(row.id, row.type, None)) == naive.nearby(row.id, row.type, None)
    for name in RADII:
        assert read(known.nearby_text("new", name, place)) == naive.nearby("new", name, place)
    assert read(known.observed_entities_text()) == naive.observed()
    for parent in ("s", "t"):
        assert read(known.members_text(parent, place)) == naive.members(parent, place)


@settings(max_examples=100, deadline=None)
@given(st.lists(types, max_size=40), st.dictionaries(types, st.integers(0, 60)))
def test_population_adds_up(crowd: list[str], seen: dict[str, int]) -> None:
    rows = [telemetry_row(index, name, None, None) for index, name in enumerate(crowd)]
    snapshot = unpack_snapshot(pack_snapshot("L1", rows, MANIFEST))
    text = Situation(snapshot, MANIFEST, {}, (), seen).population_text()
    population = json.loads(text) if text else {}
    assert set(population) == set(crowd) | {name for name, count in seen.items() if count}
    for name, counts in population.items():
        assert counts["alive"] == crowd.count(name)
        assert counts["seen"] == max(seen.get(name, 0), crowd.count(name))
        assert counts["gone"] == counts["seen"] - counts["alive"]
