"""Corners of the decision cache's key that the published cases leave out."""

import json
from typing import Any

from shared.protocol.cache_key import compile_cache_key
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.manifest import parse_manifest

Raw = dict[str, Any]


def manifest(cache: Raw | None, fields: Raw | None = None, **more: Any) -> Raw:
    actions = {"idle": "Stay", "flee": "Run", "chase": "Attack"}
    bee = {"fields": {"hp": "number"} if fields is None else fields, "actions": actions, "cache": cache}
    return {"world_fields": {"hp": "number"}, "entity_types": {"bee": bee}, **more}


def digest(
    raw: Raw,
    observation: Raw,
    parent_action: str | None = None,
    legal: list[str] | None = None,
    **request: Any,
) -> bytes:
    parsed = parse_manifest(raw)
    entity = {
        "id": "e",
        "type": "bee",
        "observation": observation,
        "legal_actions": legal or ["idle", "flee"],
    }
    body = {"client_id": "c", "epoch": 0, "world": {"hp": 1}, "entities": [entity], **request}
    decoded = CompiledManifest(parsed.manifest).decode_decide(
        json.dumps(body).encode(), CompiledContexts(parsed.contexts, parsed.manifest)
    )
    key = compile_cache_key(parsed.manifest.entity_types["bee"], parsed.manifest)
    assert key is not None
    return key.digest(decoded, decoded.entities[0], parsed.contexts, parent_action)


def test_a_type_without_a_cache_rule_has_no_key() -> None:
    parsed = parse_manifest(manifest(None)).manifest
    assert compile_cache_key(parsed.entity_types["bee"], parsed) is None


def test_sixteen_bytes() -> None:
    assert len(digest(manifest({"key": ["hp"]}), {"hp": 1})) == 16


def test_an_empty_key_makes_all_situations_one() -> None:
    raw = manifest({"key": []})
    assert digest(raw, {"hp": 0.1}) == digest(raw, {"hp": 0.9}, "idle")
    assert digest(raw, {"hp": 0.1}) != digest(raw, {"hp": 0.1}, legal=["idle", "chase"])


def test_buckets_without_thresholds_are_one_band() -> None:
    raw = manifest({"key": ["hp"], "buckets": {"hp": []}})
    assert digest(raw, {"hp": 0.1}) == digest(raw, {"hp": 0.9})


def test_zero_has_no_sign() -> None:
    raw = manifest({"key": ["hp"]})
    assert digest(raw, {"hp": -0.0}) == digest(raw, {"hp": 0})


def test_close_numbers_without_buckets_stay_apart() -> None:
    raw = manifest({"key": ["hp"]})
    assert digest(raw, {"hp": 0.1}) != digest(raw, {"hp": 0.1 + 2e-17})


def test_an_enums_number_is_not_its_digit() -> None:
    raw = manifest({"key": ["hp"]}, {"hp": [1, "1"]})
    assert digest(raw, {"hp": 1}) != digest(raw, {"hp": "1"})
    assert digest(raw, {"hp": 1}) == digest(raw, {"hp": 1.0})


def test_numeric_enums_can_be_bucketed() -> None:
    raw = manifest({"key": ["hp"], "buckets": {"hp": [2]}}, {"hp": [1, 2, 3]})
    assert digest(raw, {"hp": 2}) == digest(raw, {"hp": 3})
    assert digest(raw, {"hp": 1}) != digest(raw, {"hp": 2})


def test_no_action_of_the_parent_is_unlike_any() -> None:
    raw = manifest({"key": ["parent.action"]})
    digests = {digest(raw, {"hp": 1}, action) for action in (None, "null", "", "idle")}
    assert len(digests) == 4


def test_a_scope_field_that_the_chain_lacks_is_unlike_any_value() -> None:
    scopes = {
        "a": {"text": "", "fields": {"phase": "string"}},
        "b": {"text": "", "fields": {"other": "string"}},
    }
    raw = manifest({"key": ["scope.phase"]}, scopes=scopes)
    present = {
        digest(raw, {"hp": 1}, scope="a", scope_state={"phase": phase}) for phase in ("", "null", "other")
    }
    assert len(present) == 3
    one = digest(raw, {"hp": 1}, scope="b", scope_state={"other": "x"})
    assert one == digest(raw, {"hp": 1}, scope="b", scope_state={"other": "y"})
    assert digest(raw, {"hp": 1}) not in present


def test_a_field_called_like_a_prefix_is_an_observation() -> None:
    fields = {"world": "number", "scope": "number", "parent": "number"}
    raw = manifest({"key": ["world", "scope", "parent"]}, fields)
    base = {"world": 1, "scope": 1, "parent": 1}
    digests = {digest(raw, base)} | {digest(raw, {**base, name: 2}) for name in base}
    assert len(digests) == 4


def test_a_world_field_and_an_observation_of_one_name_are_two_entries() -> None:
    raw = manifest({"key": ["world.hp", "hp"], "buckets": {"world.hp": [0.5]}})
    assert digest(raw, {"hp": 1}, world={"hp": 2}) == digest(raw, {"hp": 1}, world={"hp": 3})
    assert digest(raw, {"hp": 2}, world={"hp": 1}) != digest(raw, {"hp": 3}, world={"hp": 1})


def test_the_order_in_which_a_manifest_lists_its_actions_does_not_count() -> None:
    raw = manifest({"key": ["hp"]})
    bee = raw["entity_types"]["bee"]
    turned = {**bee, "actions": dict(reversed(bee["actions"].items()))}
    other = {**raw, "entity_types": {"bee": turned}}
    assert digest(raw, {"hp": 1}) == digest(other, {"hp": 1})
    assert digest(raw, {"hp": 1}) != digest(other, {"hp": 1}, legal=["flee", "chase"])


def test_prefixes_are_bounded_and_rebuilt() -> None:
    parsed = parse_manifest(manifest({"key": ["hp"]}))
    compiled = CompiledManifest(parsed.manifest)
    key = compile_cache_key(parsed.manifest.entity_types["bee"], parsed.manifest)
    assert key is not None
    body = {"client_id": "c", "epoch": 0, "world": {"hp": 1}, "scope": "s"}
    body["entities"] = [{"id": "e", "type": "bee", "observation": {"hp": 1}, "legal_actions": ["idle"]}]
    digests = []
    for text in [*map(str, range(1100)), "0"]:
        contexts = parsed.contexts.updated({"s": {"text": text}}, None, parsed.manifest)
        request = compiled.decode_decide(
            json.dumps(body).encode(), CompiledContexts(contexts, parsed.manifest)
        )
        digests.append(key.digest(request, request.entities[0], contexts, None))
    assert len(set(digests)) == 1100
    assert digests[0] == digests[-1]
    assert len(key._prefixes) <= 1024
