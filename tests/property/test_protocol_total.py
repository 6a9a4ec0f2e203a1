"""The validators are total: whatever arrives, a result or an `InputError` with a short, printable text."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import InputError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.limits import MAX_ERROR_CHARS
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import decode_client_id, decode_context, decode_report, decode_telemetry
from shared.protocol.names import has_control
from shared.protocol.session import decode_session
from tests.strategies import json_values, manifests

MANIFEST = {
    "world_fields": {"night": "boolean"},
    "scopes": {"forest": {"text": "Trees.", "fields": {"fog": "number", 'a"b': "string"}}},
    "profiles": {"old": {"text": "Old."}},
    "entity_types": {
        "bee": {
            "fields": {
                "hp": "number",
                "note": "string",
                "phase": [1, "two"],
                "at": "vector2",
                "of": "entity_ref",
                "near": {"list": {"id": "entity_ref", "d": "number"}, "max": 2},
            },
            "actions": {"idle": "Stay", "flee": "Run"},
            "events": {"hit": "Was hit"},
        },
        "player": {"actions": {}},
    },
}
ENTITY = {
    "id": "1",
    "type": "bee",
    "observation": {
        "hp": 1,
        "note": "n",
        "phase": 1,
        "at": [1, 2],
        "of": None,
        "near": [{"id": "2", "d": 1}],
    },
    "legal_actions": ["idle"],
    "position": [1, 2],
}
BODIES: dict[str, Any] = {
    "session": {"a2g": "0.1", "client_id": "c", "game": "g", "engine": "e", "manifest": MANIFEST},
    "context": {"client_id": "c", "scopes": {"a": {"text": "t"}, "b": None}, "profiles": {"p": None}},
    "decide": {
        "client_id": "c",
        "epoch": 1,
        "world": {"night": True},
        "scope": "forest",
        "scope_state": {"fog": 1, 'a"b': "s"},
        "entities": [ENTITY],
    },
    "report": {
        "client_id": "c",
        "entity_id": "1",
        "decision_id": "d_1",
        "action": "idle",
        "status": "executed",
        "outcome": {"seconds": 1.5},
    },
    "telemetry": {
        "client_id": "c",
        "mode": "ai",
        "paused": False,
        "scene": "L",
        "world": {"night": True},
        "entities": [
            {"id": "1", "type": "bee", "fields": {"hp": 1}, "decision": {"a": 1}, "position": [1, 2]}
        ],
    },
}
PARSED = parse_manifest(MANIFEST)
CONTEXTS = CompiledContexts(PARSED.contexts, PARSED.manifest)
DECIDE = CompiledManifest(PARSED.manifest)


def open_session(body: bytes) -> object:
    return parse_manifest(decode_session(body).manifest)


def change_context(body: bytes) -> object:
    update = decode_context(body)
    return PARSED.contexts.updated(update.scopes, update.profiles, PARSED.manifest)


DECODERS: dict[str, Callable[[bytes], object]] = {
    "session": open_session,
    "context": change_context,
    "decide": lambda body: DECIDE.decode_decide(body, CONTEXTS),
    "report": decode_report,
    "telemetry": lambda body: decode_telemetry(body, PARSED.manifest),
    "client_id": decode_client_id,
}
HOSTILE = [
    b"",
    b"null",
    b"[" * 10_000,
    b'{"client_id":' * 10_000,
    b'{"a":' * 500 + b"1" + b"}" * 500,
    b"\xff\xfe",
    b'"\xed\xa0\x80"',
    b'{"client_id":"\\ud800"}',
    b'{"client_id":"c","epoch":1e999}',
    b'{"client_id":"c","epoch":' + b"9" * 400 + b"}",
    b'{"client_id":"c","epoch":' + b"9" * 5000 + b"}",
    b'{"client_id":"c","manifest":{"a":' + b"9" * 400 + b'},"a2g":"0.1"}',
    b'{"client_id":NaN}',
    b"\xef\xbb\xbf{}",
    b'{"x":"\xff","client_id":"c"}',
]


def judge(decoder: Callable[[bytes], object], body: bytes) -> None:
    text = ""
    try:
        decoder(body)
    except InputError as exc:
        text = str(exc)
    assert len(text) <= MAX_ERROR_CHARS
    assert not has_control(text)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:24]))
def test_hostile_bytes(kind: str, body: bytes) -> None:
    judge(DECODERS[kind], body)


@pytest.mark.parametrize("kind", BODIES)
def test_the_untouched_body_is_accepted(kind: str) -> None:
    DECODERS[kind](json.dumps(BODIES[kind]).encode())


@pytest.mark.parametrize("kind", DECODERS)
@given(st.binary(max_size=200))
def test_any_bytes(kind: str, body: bytes) -> None:
    judge(DECODERS[kind], body)


@pytest.mark.parametrize("kind", DECODERS)
@given(json_values)
@example({"client_id": "c", "scopes": {"\x00" * 200: 1}})
@example({"client_id": "c", "entities": [{"\x00" * 200: 1}] * 3})
def test_any_json(kind: str, value: Any) -> None:
    judge(DECODERS[kind], json.dumps(value).encode())


@pytest.mark.parametrize("kind", BODIES)
@given(st.data())
def test_a_valid_body_with_one_part_replaced(kind: str, data: st.DataObject) -> None:
    body = json.dumps(BODIES[kind])
    value = json.loads(body)
    holder, key = value, data.draw(st.sampled_from(list(value)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
    holder[key] = data.draw(json_values)
    judge(DECODERS[kind], json.dumps(value).encode())


@pytest.mark.parametrize("kind", BODIES)
@given(st.data())
def test_a_valid_body_with_bytes_cut_or_changed(kind: str, data: st.DataObject) -> None:
    body = bytearray(json.dumps(BODIES[kind]).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    judge(DECODERS[kind], bytes(body))


@given(json_values | st.dictionaries(st.sampled_from([*MANIFEST, "budgets"]), json_values))
def test_any_manifest(value: Any) -> None:
    judge(lambda _: parse_manifest(value), b"")


@given(st.data())
def test_a_manifest_with_one_part_replaced(data: st.DataObject) -> None:
    value = data.draw(manifests())
    holder: Any = value
    key: Any = data.draw(st.sampled_from(list(value)))
    while isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
    holder[key] = data.draw(json_values)
    judge(lambda _: CompiledManifest(parse_manifest(value).manifest), b"")
