"""Situations share a key exactly when every part that counts is equal (A2G Manifest, "Decision cache")."""

import json
from hashlib import blake2b
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol.cache_key import CacheKey, compile_cache_key
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.contexts import Contexts
from shared.protocol.manifest import parse_manifest

TRICKY = st.text(alphabet='",[]\\ab1', max_size=3)
ACTIONS = ["zap", "flee", 'a","b', "a", "b"]
MOODS: list[str | float] = ["", "1", 1, 2.5, "null", 'calm"', "a,b"]
KEY = ["hp", "alert", "mood", "note", "tag", "rank", "world.hp", "scope.phase", "scope.sky", "parent.action"]
BUCKETS = {"hp": [0.34, 0.67], "world.hp": [0.0], "rank": [2.5]}


def raw_manifest(world: str) -> dict[str, Any]:
    return {
        "world": world,
        "world_fields": {"night": "boolean", "hp": "number"},
        "entity_types": {
            name: {
                "fields": {
                    "tag": "string",
                    "hp": "number",
                    "alert": "boolean",
                    "mood": MOODS,
                    "rank": [1, 2, 3],
                    "note": "string",
                    "at": "vector2",
                },
                "actions": dict.fromkeys(ACTIONS, "Do"),
                "events": {"hit": "Hit", "a": "A"},
                "cache": {"key": KEY, "buckets": BUCKETS},
            }
            for name in ("bee", "wasp")
        },
    }


MANIFESTS = {world: parse_manifest(raw_manifest(world)).manifest for world in ("", "Arena.")}
COMPILED = {world: CompiledManifest(manifest) for world, manifest in MANIFESTS.items()}


def cache_key(world: str, entity_type: str) -> CacheKey:
    manifest = MANIFESTS[world]
    key = compile_cache_key(manifest.entity_types[entity_type], manifest)
    assert key is not None
    return key


KEYS = {(world, name): cache_key(world, name) for world in MANIFESTS for name in ("bee", "wasp")}

situations = st.fixed_dictionaries(
    {
        "manifest": st.sampled_from(list(MANIFESTS)),
        "type": st.sampled_from(["bee", "wasp"]),
        "scope": st.sampled_from([None, "forest", "glade", "moor"]),
        "texts": st.tuples(TRICKY, TRICKY, TRICKY),
        "state": st.tuples(st.sampled_from([1, 2]), TRICKY),
        "profile": st.sampled_from([None, "old", "sly"]),
        "profile_text": TRICKY,
        "trigger": st.sampled_from([None, "hit", "a"]),
        "legal": st.lists(st.sampled_from(ACTIONS), min_size=1, unique=True),
        "hp": st.sampled_from([0.3399999, 0.34, 0.5, 0.67, 1, 1.0]) | st.floats(-2, 2),
        "world_hp": st.sampled_from([0, 0.0, -0.0, -1e-9]) | st.floats(-2, 2),
        "alert": st.booleans(),
        "mood": st.sampled_from(MOODS),
        "rank": st.sampled_from([1, 2, 3, 3.0]),
        "note": TRICKY,
        "tag": TRICKY,
        "parent_action": st.none() | st.sampled_from(ACTIONS) | TRICKY,
        "ignored": st.tuples(st.booleans(), st.floats(-1, 1)),
    }
)


def scopes(situation: dict[str, Any]) -> dict[str, Any]:
    forest, glade, moor = situation["texts"]
    return {
        "forest": {"text": forest, "fields": {"phase": [1, 2]}},
        "glade": {"parent": "forest", "text": glade, "fields": {"sky": "string"}},
        "moor": {"text": moor},
    }


def scope_state(situation: dict[str, Any]) -> dict[str, Any]:
    phase, sky = situation["state"]
    return {None: {}, "forest": {"phase": phase}, "glade": {"phase": phase, "sky": sky}, "moor": {}}[
        situation["scope"]
    ]


def digest(situation: dict[str, Any]) -> bytes:
    world, name = situation["manifest"], situation["type"]
    manifest = MANIFESTS[world]
    profiles = {key: {"text": situation["profile_text"]} for key in ("old", "sly")}
    contexts = Contexts().updated(scopes(situation), profiles, manifest)
    state = scope_state(situation)
    night, at = situation["ignored"]
    body = {
        "client_id": "c",
        "epoch": 1,
        "world": {"hp": situation["world_hp"], "night": night},
        "scope": situation["scope"],
        "entities": [
            {
                "id": "e",
                "type": name,
                "observation": {
                    **{field: situation[field] for field in ("hp", "alert", "mood", "rank", "note", "tag")},
                    "at": [at, at],
                },
                "legal_actions": situation["legal"],
                "profile": situation["profile"],
                "trigger": situation["trigger"],
            }
        ],
    }
    if state:
        body["scope_state"] = state
    request = COMPILED[world].decode_decide(json.dumps(body).encode(), CompiledContexts(contexts, manifest))
    return KEYS[world, name].digest(request, request.entities[0], contexts, situation["parent_action"])


def parts(situation: dict[str, Any]) -> list[Any]:
    """The array of the rule, by hand."""
    forest, glade, moor = situation["texts"]
    chain = {None: [], "forest": [forest], "glade": [forest, glade], "moor": [moor]}[situation["scope"]]
    hp, rank = situation["hp"], situation["rank"]
    state = scope_state(situation)
    return [
        MANIFESTS[situation["manifest"]].hash,
        situation["type"],
        situation["scope"],
        chain,
        situation["profile"],
        situation["profile_text"] if situation["profile"] else None,
        situation["trigger"],
        sorted(situation["legal"]),
        [
            0 if hp < 0.34 else 1 if hp < 0.67 else 2,
            situation["alert"],
            situation["mood"],
            situation["note"],
            situation["tag"],
            0 if rank < 2.5 else 1,
            0 if situation["world_hp"] < 0 else 1,
            state.get("phase"),
            state.get("sky"),
            situation["parent_action"],
        ],
    ]


@settings(max_examples=200, deadline=None)
@given(situations)
def test_the_key_is_the_hash_of_the_canonical_array(situation: dict[str, Any]) -> None:
    text = json.dumps(parts(situation), separators=(",", ":"), ensure_ascii=False)
    assert digest(situation) == blake2b(text.encode(), digest_size=16).digest()


@settings(max_examples=300, deadline=None)
@given(situations, situations, st.data())
def test_equal_keys_for_equal_parts_only(
    one: dict[str, Any], other: dict[str, Any], data: st.DataObject
) -> None:
    # Neighbours tell more than strangers: take all but a few parts from the first.
    changed = data.draw(st.sets(st.sampled_from(sorted(one)), max_size=2))
    neighbour = {part: (other if part in changed else one)[part] for part in one}
    assert (digest(one) == digest(neighbour)) == (parts(one) == parts(neighbour))
