"""Context updates, reports and telemetry (A2G Context, Report, Telemetry)."""

import json
from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import (
    Report,
    Telemetry,
    TelemetryRow,
    decode_client_id,
    decode_context,
    decode_report,
    decode_telemetry,
)

LONG_NAME = "n" * 128
MANIFEST = parse_manifest(
    {
        "world_fields": {LONG_NAME: "number"},
        "entity_types": {"bee": {"actions": {"idle": ""}, "fields": {LONG_NAME: "number"}}, "player": {}},
    }
).manifest


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


# client_id


def test_the_client_id_is_read_without_judging_the_rest() -> None:
    assert decode_client_id(b'{"epoch":"x","client_id":"c-1","entities":5}') == "c-1"


@pytest.mark.parametrize("client_id", ["", 5, None, "a\x00", "c" * 129, []])
def test_a_client_id_that_is_no_name(client_id: Any) -> None:
    with pytest.raises(InputError, match="client_id"):
        decode_client_id(encoded({"client_id": client_id}))


def test_bytes_that_are_not_utf8_are_refused_even_where_nobody_looks() -> None:
    with pytest.raises(InputError, match="UTF-8"):
        decode_client_id(b'{"ignored":"\xff","client_id":"c"}')


# Context


def test_a_context_update() -> None:
    update = decode_context(b'{"client_id":"c","scopes":{"a":null},"extra":1}')
    assert (update.client_id, update.scopes, update.profiles) == ("c", {"a": None}, None)


@pytest.mark.parametrize("tables", [{}, {"scopes": None}, {"scopes": None, "profiles": None}])
def test_a_context_update_changes_something(tables: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="scopes or profiles is required"):
        decode_context(encoded({"client_id": "c", **tables}))


@pytest.mark.parametrize("key", ["scopes", "profiles"])
def test_context_tables_are_objects(key: str) -> None:
    with pytest.raises(InputError, match=f"{key}: must be an object"):
        decode_context(encoded({"client_id": "c", key: [1]}))


# Report

REPORT = {"client_id": "c", "entity_id": "1", "decision_id": "d_1", "action": "flee", "status": "executed"}


def report(**keys: Any) -> Report:
    sent = {key: value for key, value in (REPORT | keys).items() if value != "absent"}
    return decode_report(encoded(sent))


def refused_report(**keys: Any) -> str:
    with pytest.raises(InputError) as refused:
        report(**keys)
    return str(refused.value)


def test_a_report() -> None:
    read = report(outcome={"seconds": 4.2, "hits": 3, "won": True, "by": "a\nb"})
    assert (read.client_id, read.entity_id, read.decision_id) == ("c", "1", "d_1")
    assert (read.action, read.status, read.source) == ("flee", "executed", "AI")
    assert read.outcome == {"seconds": 4.2, "hits": 3, "won": True, "by": "ab"}
    assert (read.local_prediction, read.policy_version) == (None, None)


def test_a_report_with_training_fields() -> None:
    prediction = {"action": "flee", "confidence": 0.74, "other": [1]}
    read = report(local_prediction=prediction, policy_version="2026\n", source="AI")
    assert (read.local_prediction, read.policy_version) == ({"action": "flee", "confidence": 0.74}, "2026")


def test_only_the_games_own_policy_reports_without_a_decision_id() -> None:
    assert report(decision_id="absent", source="LOCAL").decision_id is None
    assert refused_report(decision_id="absent") == "decision_id: is required"
    assert refused_report(decision_id=None, source="AI") == "decision_id: is required"


@pytest.mark.parametrize("key", ["client_id", "entity_id", "action", "status"])
def test_what_a_report_must_have(key: str) -> None:
    assert refused_report(**{key: "absent"}) == f"{key}: is required"


@pytest.mark.parametrize("key", ["client_id", "entity_id", "action", "decision_id"])
@pytest.mark.parametrize("value", ["", "a\x7fb", "n" * 129, 5])
def test_ids_of_a_report_are_names(key: str, value: Any) -> None:
    assert refused_report(**{key: value}).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"status": "done"}, "status"),
        ({"status": "done", "decision_id": "absent"}, "status"),
        ({"source": "HUMAN"}, "source"),
        ({"outcome": {f"k{i}": i for i in range(13)}}, "outcome"),
        ({"outcome": {"a": [1]}}, "outcome.a"),
        ({"outcome": {"a": {}}}, "outcome.a"),
        ({"outcome": {"a": "x" * 81}}, "outcome.a"),
        ({"outcome": {"k" * 81: 1}}, "outcome.k"),
        ({"outcome": {"a": 10**400}}, "outcome.a"),
        ({"outcome": [1]}, "outcome"),
        ({"policy_version": "v" * 81}, "policy_version"),
        ({"local_prediction": {"action": 5}}, "local_prediction.action"),
        ({"local_prediction": {"confidence": "high"}}, "local_prediction.confidence"),
        ({"local_prediction": {"confidence": True}}, "local_prediction.confidence"),
    ],
)
def test_a_report_that_is_refused(keys: dict[str, Any], path: str) -> None:
    assert refused_report(**keys).startswith(path)


def test_twelve_outcome_values_and_null_as_absent() -> None:
    outcome = {f"k{i}": i for i in range(12)} | {"nothing": None}
    assert len(report(outcome=outcome).outcome) == 12
    assert report(outcome=None, source=None, local_prediction=None).outcome == {}


def test_a_number_beyond_64_bits_is_kept_as_a_double() -> None:
    assert report(outcome={"a": 2**70, "b": -(2**63)}).outcome == {"a": float(2**70), "b": -(2**63)}


# Telemetry

SNAPSHOT = {"client_id": "c", "mode": "ai", "paused": False}


def telemetry(*entities: Any, **keys: Any) -> Telemetry:
    sent = SNAPSHOT | {"entities": list(entities)} | keys
    return decode_telemetry(
        encoded({key: value for key, value in sent.items() if value != "absent"}), MANIFEST
    )


def refused_telemetry(*entities: Any, **keys: Any) -> str:
    with pytest.raises(InputError) as refused:
        telemetry(*entities, **keys)
    return str(refused.value)


def row(**keys: Any) -> dict[str, Any]:
    return {"id": "1", "type": "bee", **keys}


def test_a_snapshot() -> None:
    entity = row(
        name="Be\ne",
        state="FLEE",
        pending=True,
        fields={"hp": 0.5, "at": [1, 2], "near": [], "none": None, "a\nb": "x\x00y"},
        decision={"source": "AI", "action": "flee", "confidence": 0.7, "all": {}},
        position=[1, 2.5],
        parent="swarm",
        profile="old",
        extra={"a": 1},
    )
    read = telemetry(
        entity, scene="L1", scope="forest", last_error="", world={"night": True, "at": [1]}, more=1
    )
    assert (read.client_id, read.mode, read.paused) == ("c", "ai", False)
    assert (read.scene, read.scope, read.world) == ("L1", "forest", {"night": True})
    assert read.rows == (
        TelemetryRow(
            id="1",
            type="bee",
            name="Bee",
            state="FLEE",
            pending=True,
            fields={"hp": 0.5, "ab": "xy"},
            decision={"source": "AI", "action": "flee", "confidence": 0.7},
            position=(1.0, 2.5),
            parent="swarm",
            profile="old",
        ),
    )


def test_the_smallest_snapshot() -> None:
    read = decode_telemetry(encoded(SNAPSHOT), MANIFEST)
    assert (read.scene, read.scope, read.world, read.rows) == ("", None, {}, ())
    assert telemetry(row(type="player")).rows[0] == TelemetryRow(
        id="1",
        type="player",
        name="",
        state="",
        pending=False,
        fields={},
        decision=None,
        position=None,
        parent=None,
        profile=None,
    )


@pytest.mark.parametrize("mode", ["native", "ai", "local", "service", "cascade", "shadow"])
def test_the_modes(mode: str) -> None:
    assert telemetry(mode=mode).mode == mode


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"paused": "absent"}, "paused: is required"),
        ({"paused": None}, "paused: "),
        ({"paused": 0}, "paused: "),
        ({"mode": "auto"}, "mode: "),
        ({"mode": "absent"}, "mode: is required"),
        ({"scene": ""}, "scene: "),
        ({"scene": "a\nb"}, "scene: "),
        ({"scope": "s" * 129}, "scope: "),
        ({"client_id": "\x00"}, "client_id: "),
        ({"world": {f"k{i}": i for i in range(25)}}, "world: "),
        ({"world": {"k" * 81: 1}}, "world.k"),
        ({"world": [1]}, "world: "),
    ],
)
def test_a_snapshot_that_is_refused(keys: dict[str, Any], path: str) -> None:
    assert refused_telemetry(**keys).startswith(path)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"id": ""}, "id"),
        ({"id": "a\x7f"}, "id"),
        ({"id": 5}, "id"),
        ({"type": "bat"}, "type"),
        ({"type": 5}, "type"),
        ({"parent": ""}, "parent"),
        ({"parent": "1"}, "parent"),
        ({"profile": "a\n"}, "profile"),
        ({"name": "n" * 81}, "name"),
        ({"state": 5}, "state"),
        ({"pending": 1}, "pending"),
        ({"position": [1]}, "position"),
        ({"position": [1, 2, 3, 4]}, "position"),
        ({"position": [1, "2"]}, "position"),
        ({"fields": {f"k{i}": i for i in range(25)}}, "fields"),
        ({"fields": {"a": "x" * 81}}, "fields.a"),
        ({"fields": {"k" * 81: 1}}, "fields.k"),
        ({"fields": []}, "fields"),
        ({"decision": {f"k{i}": i for i in range(13)}}, "decision"),
    ],
)
def test_a_row_that_is_refused(keys: dict[str, Any], path: str) -> None:
    assert refused_telemetry(row(id="0"), row(**keys)).startswith(f"entities[1].{path}")


def test_limits_count_scalars_only() -> None:
    fields = {f"k{i}": i for i in range(24)} | {f"v{i}": [1] for i in range(9)}
    assert len(telemetry(row(fields=fields)).rows[0].fields) == 24
    assert len(telemetry(world=fields).world) == 24
    assert telemetry(row(decision={f"k{i}": i for i in range(12)})).rows[0].decision is not None


def test_a_declared_name_may_be_longer_than_a_string() -> None:
    assert telemetry(row(fields={LONG_NAME: 1}), world={LONG_NAME: 2}).rows[0].fields == {LONG_NAME: 1}
    assert refused_telemetry(row(decision={LONG_NAME: 1})).startswith("entities[0].decision.")


def test_ids_are_unique_and_at_most_128() -> None:
    assert refused_telemetry(row(), row()) == "entities[1].id: occurs twice"
    rows = [row(id=str(i)) for i in range(129)]
    assert len(telemetry(*rows[:128]).rows) == 128
    assert refused_telemetry(*rows).startswith("entities: ")
