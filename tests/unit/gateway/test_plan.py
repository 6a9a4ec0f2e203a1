"""What a gateway derives once: rounding of shared state, cache keys that wait for parents, lane texts."""

import json
from typing import Any

from gateway.plan import ManifestPlan, ScopePlan
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.manifest import parse_manifest

MANIFEST: dict[str, Any] = {
    "world_fields": {"hp": "number", "night": "boolean"},
    "scopes": {
        "moor": {"text": "Wet."},
        "bog": {"parent": "moor", "text": "Deep.", "fields": {"fog": "number"}},
        "fen": {"text": "Wet."},
    },
    "entity_types": {
        "imp": {
            "fields": {"size": "number"},
            "actions": {"grin": "Show teeth", "hide": "Vanish"},
            "cache": {"key": ["world.hp", "scope.fog", "parent.action"], "buckets": {"world.hp": [0.25]}},
        },
        "hag": {
            "actions": {"curse": "Say it", "wait": "Do nothing"},
            "cache": {"key": ["world.hp", "scope.fog"], "buckets": {"world.hp": [0.5], "scope.fog": [0.125]}},
        },
        "rock": {"actions": {"hum": "Hum", "roll": "Roll"}},
    },
}
PARSED = parse_manifest(MANIFEST)
COMPILED = CompiledManifest(PARSED.manifest)
CONTEXTS = CompiledContexts(PARSED.contexts, PARSED.manifest)
PLAN = ManifestPlan(COMPILED)


def decoded(world_hp: float, fog: float) -> Any:
    body = {
        "client_id": "c",
        "epoch": 1,
        "world": {"hp": world_hp, "night": True},
        "scope": "bog",
        "scope_state": {"fog": fog},
        "entities": [{"id": "a", "type": "rock", "observation": {}, "legal_actions": ["hum", "roll"]}],
    }
    return COMPILED.decode_decide(json.dumps(body).encode(), CONTEXTS)


def test_shared_state_is_rounded_to_what_any_types_buckets_distinguish() -> None:
    request = decoded(0.24999, 0.12499)
    assert PLAN.world is not None
    assert PLAN.world(request.world) == '{"hp":0.24,"night":true}'
    state = ScopePlan(CONTEXTS, "bog").state
    assert state is not None
    assert state(request.scope_state) == '{"fog":0.124}'


def test_only_types_whose_cache_key_names_the_parent_wait_for_it() -> None:
    assert set(PLAN.cache_keys) == {"imp", "hag"}
    assert PLAN.parent_keyed == {"imp"}


def test_lane_texts_differ_by_chain_and_by_the_scopes_name() -> None:
    texts = [ScopePlan(CONTEXTS, scope).texts_hash for scope in (None, "moor", "bog", "fen")]
    assert len(set(texts)) == 4


def test_a_chain_without_fields_has_no_state() -> None:
    assert ScopePlan(CONTEXTS, "moor").state is None
    assert ScopePlan(CONTEXTS, None).state is None
