"""The published cases of the situation context (tests/vectors/a2g/situation.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.protocol.manifest import Manifest, parse_manifest
from shared.protocol.messages import decode_telemetry
from shared.protocol.situation import AskedRow, Situation, pack_snapshot, snapshot_ids, unpack_snapshot

VECTORS = Path(__file__).parents[2] / "vectors" / "a2g" / "situation.json"
CASES = json.loads(VECTORS.read_text())["cases"]


class Session:
    """What a session knows after its snapshots, and the entities of the request that follows."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.manifest: Manifest = parse_manifest(case["manifest"]).manifest
        scene, seen = None, set[tuple[str, str]]()
        for body in case["telemetry"]:
            telemetry = decode_telemetry(json.dumps({"client_id": "c", **body}).encode(), self.manifest)
            if telemetry.scene != scene:
                scene, seen = telemetry.scene, set()
            seen.update(snapshot_ids(telemetry.rows))
            blob = pack_snapshot(telemetry.scene, telemetry.rows, self.manifest)
        self.asking = case.get("asking") or [
            {"id": row.id, "type": row.type}
            for row in telemetry.rows
            if not self.manifest.entity_types[row.type].observe_only
        ]
        self.situation = Situation(
            unpack_snapshot(blob),
            self.manifest,
            {},
            [AskedRow(e["id"], e["type"], e.get("position"), e.get("parent"), "{}") for e in self.asking],
            {name: sum(kind == name for _, kind in seen) for name in self.manifest.entity_types},
        )

    def asked(self, entity_id: str) -> dict[str, Any]:
        return next(entity for entity in self.asking if entity["id"] == entity_id)

    def nearby(self, entity_id: str) -> list[dict[str, Any]]:
        entity = self.asked(entity_id)
        return read(self.situation.nearby_text(entity_id, entity["type"], entity.get("position")))

    def members(self, parent_id: str) -> list[str]:
        position = self.asked(parent_id).get("position")
        return [member["id"] for member in read(self.situation.members_text(parent_id, position))]


def read(text: str) -> Any:
    return json.loads(text) if text else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    session, expect = Session(case), case["expect"]
    population = json.loads(session.situation.population_text())
    for name, counts in expect.get("population", {}).items():
        assert population[name] == counts
    for asking, ids in expect.get("nearby", {}).items():
        assert [found["id"] for found in session.nearby(asking)] == ids
    for asking, others in expect.get("distances", {}).items():
        distances = {found["id"]: found["distance"] for found in session.nearby(asking)}
        assert distances == pytest.approx(others, abs=1e-6)
    check_observed(session, expect)
    for parent, ids in expect.get("members", {}).items():
        assert session.members(parent) == ids
    for parent, ids in expect.get("members_any_order", {}).items():
        assert sorted(session.members(parent)) == sorted(ids)
    for parent, count in expect.get("members_count", {}).items():
        assert len(session.members(parent)) == count


def check_observed(session: Session, expect: dict[str, Any]) -> None:
    observed = {entity["id"]: entity for entity in read(session.situation.observed_entities_text())}
    for entity_id, wanted in expect.get("observed_entities", {}).items():
        assert observed[entity_id]["fields"] == wanted["fields"]
        assert observed[entity_id].get("nearby_counts", {}) == wanted.get("nearby_counts", {})
    assert not observed.keys() & set(expect.get("not_observed", []))
