"""Decide requests against compiled manifests, and replies (A2G Decide), beyond the published vectors."""

import json
from typing import Any, get_args

import msgspec
import pytest

from shared.errors import InputError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.decide import (
    REASONS,
    DecideRequest,
    Decision,
    Fallback,
    FallbackCode,
    encode_decide_reply,
)
from shared.protocol.fields import attribute
from shared.protocol.manifest import parse_manifest

FIELDS = {
    "hp": "number",
    "note": "string",
    "phase": [1, 2.5, "two", ""],
    "of": "entity_ref",
    "at": "vector2",
    "near": {"list": {"id": "entity_ref", "note": "string", "n": [1, 2]}, "max": 2},
}
MANIFEST: dict[str, Any] = {
    "world_fields": {"text": "string"},
    "scopes": {
        "wood": {"text": "", "fields": {"fog": "number", "sign": "string"}},
        "glade": {"text": "", "parent": "wood", "fields": {"phase": [1, 2]}},
        "flat": {"text": ""},
    },
    "profiles": {
        "any": {"text": ""},
        "queen": {"text": "", "type": "boss"},
        "lost": {"text": "", "type": "bat"},
    },
    "entity_types": {
        "player": {"actions": {}},
        "bee": {"fields": FIELDS, "actions": {"idle": "", "chase": "", "flee": ""}, "events": {"hit": ""}},
        "boss": {"actions": {"roar": ""}},
    },
}
OBSERVATION = {"hp": 1, "note": "n", "phase": 1, "of": None, "at": [1, 2], "near": []}


def bee(**keys: Any) -> dict[str, Any]:
    return {"id": "1", "type": "bee", "observation": OBSERVATION, "legal_actions": ["idle"], **keys}


def seeing(**fields: Any) -> dict[str, Any]:
    return bee(observation=OBSERVATION | fields)


def request(*entities: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "client_id": "c",
        "epoch": 1,
        "world": {"text": "w"},
        "entities": list(entities or [bee()]),
        **keys,
    }


def decode(sent: Any, manifest: dict[str, Any] = MANIFEST) -> DecideRequest:
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    parsed = parse_manifest(manifest)
    return CompiledManifest(parsed.manifest).decode_decide(
        body, CompiledContexts(parsed.contexts, parsed.manifest)
    )


def refusal(sent: Any, manifest: dict[str, Any] = MANIFEST) -> str:
    with pytest.raises(InputError) as refused:
        decode(sent, manifest)
    return str(refused.value)


def test_what_a_decoded_entity_offers() -> None:
    sent = bee(legal_actions=["flee", "idle"], position=[1, 2.5, 3], parent="p", trigger="hit", profile="any")
    entity = decode(request(sent)).entities[0]
    assert entity.entity_type.name == "bee"
    assert (entity.legal_actions, entity.legal_mask) == (("idle", "flee"), 0b101)
    assert (entity.position, entity.parent) == ((1.0, 2.5, 3.0), "p")
    assert (entity.trigger, entity.profile) == ("hit", "any")


def test_an_order_seen_before_gives_the_same_answer() -> None:
    entities = decode(
        request(bee(legal_actions=["flee", "idle"]), bee(id="2", legal_actions=["flee", "idle"]))
    )
    assert {(entity.legal_mask, entity.legal_actions) for entity in entities.entities} == {
        (5, ("idle", "flee"))
    }


def test_observation_fields_are_attributes_in_their_declared_order() -> None:
    item = {"id": "x", "note": "a\x00b", "n": 2.0}
    observation = decode(request(seeing(note="a\nb\x85", phase=2.5, near=[item]))).entities[0].observation
    values = [getattr(observation, attribute(i)) for i in range(len(FIELDS))]
    assert values[:5] == [1.0, "ab", 2.5, None, (1.0, 2.0)]
    assert msgspec.to_builtins(values[5]) == [{"id": "x", "note": "ab", "n": 2}]


def test_an_enum_value_is_kept_as_declared() -> None:
    for sent, kept in [(1.0, 1), (1, 1), (2.5, 2.5), ("two", "two"), ("", "")]:
        observation = decode(request(seeing(phase=sent))).entities[0].observation
        value = getattr(observation, attribute(2))
        assert (value, type(value)) == (kept, type(kept))


@pytest.mark.parametrize("value", [True, "1", 2, None, [], "TWO", 1e300])
def test_an_enum_value_that_is_not_listed(value: Any) -> None:
    assert refusal(request(seeing(phase=value))).startswith("entities[0].observation.phase: ")


def test_strings_are_cleaned_however_the_control_character_is_spelled() -> None:
    for spelling in (b"a\\u0000b", b"a\x7fb", "a\x9fb".encode(), b"a\\nb"):
        body = json.dumps(request()).encode().replace(b'"w"', b'"' + spelling + b'"')
        assert getattr(decode(body).world, attribute(0)) == "ab"


@pytest.mark.parametrize("spelling", [b"a\\u0000b", b"a\x7fb", "a\x9fb".encode()])
@pytest.mark.parametrize("key", ["client_id", "id", "parent", "of"])
def test_ids_with_control_characters_are_refused(spelling: bytes, key: str) -> None:
    sent = request(
        bee(id="@id", parent="@parent", observation=OBSERVATION | {"of": "@of"}), client_id="@client_id"
    )
    body = json.dumps(sent).encode().replace(b"@" + key.encode(), spelling)
    text = refusal(body)
    assert text.endswith("must hold no control characters")
    assert key in text


@pytest.mark.parametrize("key", ["client_id", "id", "parent"])
def test_ids_have_1_to_128_characters(key: str) -> None:
    for value in ("", "x" * 129, 5, ["x"]):
        sent = request(client_id=value) if key == "client_id" else request(bee(**{key: value}))
        assert key in refusal(sent)
    longest = "😀" * 128
    decode(request(client_id=longest) if key == "client_id" else request(bee(**{key: longest})))


@pytest.mark.parametrize(
    ("sent", "epoch"), [(7.0, 7), (0, 0), (2**53 + 1, 2**53 + 1), (2**63 - 1, 2**63 - 1)]
)
def test_an_epoch_is_a_whole_number_kept_exactly(sent: Any, epoch: int) -> None:
    decoded = decode(request(epoch=sent)).epoch
    assert (decoded, type(decoded)) == (epoch, int)


@pytest.mark.parametrize("epoch", [7.5, -1, 2**63, 1e300, True, "7", None, 10**400])
def test_an_epoch_that_is_none(epoch: Any) -> None:
    refusal(request(epoch=epoch))


def test_null_for_an_optional_key_is_as_if_absent() -> None:
    nulls = dict.fromkeys(["position", "profile", "parent", "trigger"])
    decoded = decode(request(bee(**nulls), scope=None, scope_state=None))
    assert msgspec.to_builtins(decoded) == msgspec.to_builtins(decode(request()))


def test_unknown_keys_are_ignored() -> None:
    noise = {"legal_mask": "x", "entity_type": 5, "f0": [], "note": {"deep": [1]}}
    decoded = decode(request(bee(**noise), extra=1, **noise))
    assert msgspec.to_builtins(decoded) == msgspec.to_builtins(decode(request()))
    assert decoded.entities[0].legal_mask == 1


@pytest.mark.parametrize("position", [[1], [1, 2, 3, 4], [1, None], [1, True], ["1", 2], {"x": 1}, 5])
def test_a_position_has_two_or_three_numbers(position: Any) -> None:
    assert refusal(request(bee(position=position))).startswith("entities[0].position")


def test_an_entity_is_not_its_own_parent() -> None:
    assert refusal(request(bee(id="7", parent="7"))) == "entities[0].parent: must be another entity"


def test_rules_of_profiles() -> None:
    boss = {"id": "2", "type": "boss", "observation": {}, "legal_actions": ["roar"], "profile": "queen"}
    decode(request(bee(profile="any"), boss))
    assert (
        refusal(request(bee(), boss | {"profile": "lost"}))
        == "entities[1].profile: belongs to another entity type"
    )
    assert refusal(request(bee(profile="none"))) == "entities[0].profile: no such profile"


def test_a_lone_type_is_required_too() -> None:
    lone = {"entity_types": {"bee": {"actions": {"idle": ""}}}}
    entity = {"id": "1", "type": "bee", "observation": {}, "legal_actions": ["idle"]}
    sent = {"client_id": "c", "epoch": 1, "world": {}, "entities": [entity]}
    assert decode(sent, lone).entities[0].entity_type.name == "bee"
    assert refusal(sent | {"entities": [entity | {"type": "bat"}]}, lone).startswith("entities[0].type: ")
    del entity["type"]
    assert refusal(sent, lone) == "entities[0].type: is required"


def test_scope_state_covers_the_chain_root_first() -> None:
    decoded = decode(request(scope="glade", scope_state={"phase": 2.0, "fog": 1, "sign": "a\nb"}))
    assert [getattr(decoded.scope_state, attribute(i)) for i in range(3)] == [1.0, "ab", 2]


def test_scope_state_of_a_chain_without_fields_may_be_left_out() -> None:
    for keys in ({}, {"scope_state": None}, {"scope_state": {}}):
        assert decode(request(scope="flat", **keys)).scope_state is not None
    assert refusal(request(scope="flat", scope_state={"x": 1})) == "scope_state.x: is not declared"


@pytest.mark.parametrize("state", [[], 5, "x", True, {"fog": 1}, {"fog": 1, "sign": "s", "phase": 1}])
def test_a_scope_state_that_does_not_fit(state: Any) -> None:
    assert refusal(request(scope="wood", scope_state=state)).startswith("scope_state")


def test_a_missing_scope_state_lacks_the_fields_of_its_chain() -> None:
    assert refusal(request(scope="wood")) == "scope_state.fog: is required"


def test_scope_state_needs_a_scope() -> None:
    for state in ({}, {"fog": 1}):
        assert refusal(request(scope_state=state)) == "scope_state: is allowed only with a scope"


def test_scope_fields_are_known_to_renderers() -> None:
    parsed = parse_manifest(MANIFEST)
    contexts = CompiledContexts(parsed.contexts, parsed.manifest)
    assert list(contexts.scope_fields("glade")) == ["fog", "sign", "phase"]


def test_names_with_quotes_and_backslashes_work_throughout() -> None:
    manifest = {
        "world_fields": {'a"b': "number"},
        "scopes": {"s": {"text": "", "fields": {"q\\": "string", "scope_state": "number"}}},
        "entity_types": {'be"e': {"fields": {'h"': {"list": {"\\": [1]}, "max": 1}}, "actions": {'a"': ""}}},
    }
    entity = {"id": "1", "type": 'be"e', "observation": {'h"': [{"\\": 1.0}]}, "legal_actions": ['a"']}
    sent = {"client_id": "c", "epoch": 1, "world": {'a"b': 1}, "scope": "s", "entities": [entity]}
    sent["scope_state"] = {"q\\": "x", "scope_state": 3}
    assert decode(sent, manifest).entities[0].legal_actions == ('a"',)
    assert refusal(sent | {"world": {}}, manifest) == 'world.a"b: is required'
    assert refusal(sent | {"world": {"a\x80b": 1}}, manifest).startswith("world.a")
    assert refusal(sent | {"scope_state": {"scope_state": 3}}, manifest) == "scope_state.q\\: is required"
    entity["observation"] = {'h"': [{"\\": 2}]}
    assert refusal(sent, manifest) == 'entities[0].observation.h"[0].\\: must be one of the allowed values'


def test_a_choice_that_is_not_offered_is_named_by_its_path() -> None:
    assert refusal(request(bee(legal_actions=["idle", "fly"]))) == (
        "entities[0].legal_actions[1]: must be one of the allowed values"
    )
    assert refusal(request(bee(type="player"))) == (
        "entities[0].type: must be a declared entity type that has actions"
    )
    assert refusal(request(seeing(hp="1"))) == "entities[0].observation.hp: must be number, got string"


def test_errors_echo_no_values() -> None:
    secret = "s3cret\nvalue"
    for sent in (
        request(seeing(phase=secret)),
        request(bee(type=secret)),
        request(bee(legal_actions=[secret])),
        request(bee(trigger=secret)),
        request(bee(profile=secret)),
        request(scope=secret),
        request(seeing(hp=secret)),
    ):
        assert "s3cret" not in refusal(sent)


def test_a_reply_as_the_game_reads_it() -> None:
    fresh = Decision(id="1", action="flee", label="Run", confidence=0.5, ttl_ms=12000, decision_id="d_1")
    cached = Decision(
        id="2", action="idle", label="", confidence=None, ttl_ms=12000, decision_id="d_2", cached=True
    )
    lost = Fallback(id="3", code="busy", reason=REASONS["busy"], ttl_ms=5000)
    assert json.loads(encode_decide_reply(7, 840, [fresh, cached, lost])) == {
        "a2g": "0.1",
        "epoch": 7,
        "latency_ms": 840,
        "decisions": [
            {
                "id": "1",
                "source": "AI",
                "action": "flee",
                "label": "Run",
                "confidence": 0.5,
                "ttl_ms": 12000,
                "decision_id": "d_1",
            },
            {
                "id": "2",
                "source": "AI",
                "action": "idle",
                "label": "",
                "confidence": None,
                "ttl_ms": 12000,
                "decision_id": "d_2",
                "cached": True,
            },
            {
                "id": "3",
                "source": "FALLBACK",
                "code": "busy",
                "reason": "The service is at capacity",
                "ttl_ms": 5000,
            },
        ],
    }


def test_every_code_has_its_reason() -> None:
    assert set(REASONS) == set(get_args(FallbackCode))
