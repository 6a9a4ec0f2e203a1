"""The rules of a decide request, written a second time: slow, on plain JSON, one rule after the other. The
property tests hold the compiled decoder against it. Only for manifests that are valid."""

import unicodedata
from typing import Any

Json = Any


def accepts(manifest: dict[str, Json], request: Json) -> bool:
    """Whether `request` follows the rules of A2G Decide, "Request", under `manifest` and its own contexts."""
    if not isinstance(request, dict):
        return False
    return (
        is_id(request.get("client_id"))
        and is_epoch(request.get("epoch"))
        and is_object(manifest.get("world_fields") or {}, request.get("world"))
        and scope_fits(manifest.get("scopes") or {}, request)
        and entities_fit(manifest, request.get("entities"))
    )


def is_id(value: Json) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= 128
        and all(unicodedata.category(char) != "Cc" for char in value)
    )


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_epoch(value: Json) -> bool:
    return is_number(value) and value == int(value) and 0 <= value < 2**63


def is_object(fields: dict[str, Json], value: Json) -> bool:
    """Exactly the declared fields."""
    return (
        isinstance(value, dict)
        and set(value) == set(fields)
        and all(is_value(declared, value[name]) for name, declared in fields.items())
    )


def is_value(declared: Json, value: Json) -> bool:
    if isinstance(declared, list):
        return any(same(option, value) for option in declared)
    if isinstance(declared, dict):
        return (
            isinstance(value, list)
            and len(value) <= declared["max"]
            and all(is_object(declared["list"], item) for item in value)
        )
    if declared == "number":
        return is_number(value)
    if declared == "boolean":
        return isinstance(value, bool)
    if declared == "string":
        return isinstance(value, str) and len(value) <= 80
    if declared == "entity_ref":
        return value is None or is_id(value)
    return is_vector(value, {"vector2": {2}, "vector3": {3}}[declared])


def same(option: Json, value: Json) -> bool:
    if isinstance(option, str) or isinstance(value, str):
        return isinstance(option, str) and isinstance(value, str) and option == value
    return is_number(value) and float(option) == float(value)


def is_vector(value: Json, lengths: set[int]) -> bool:
    return isinstance(value, list) and len(value) in lengths and all(map(is_number, value))


def scope_fits(scopes: dict[str, Json], request: dict[str, Json]) -> bool:
    scope, state = request.get("scope"), request.get("scope_state")
    if scope is None:
        return state is None
    if not isinstance(scope, str) or scope not in scopes:
        return False
    fields: dict[str, Json] = {}
    while scope is not None:
        fields |= scopes[scope].get("fields") or {}
        scope = scopes[scope].get("parent")
    return not fields if state is None else is_object(fields, state)


def entities_fit(manifest: dict[str, Json], entities: Json) -> bool:
    if not isinstance(entities, list) or not 1 <= len(entities) <= 16:
        return False
    if not all(isinstance(entity, dict) and entity_fits(manifest, entity) for entity in entities):
        return False
    return len({entity["id"] for entity in entities}) == len(entities)


def entity_fits(manifest: dict[str, Json], entity: dict[str, Json]) -> bool:
    if not is_id(entity.get("id")) or not isinstance(entity.get("type"), str):
        return False
    kind = manifest["entity_types"].get(entity["type"])
    if kind is None or not kind.get("actions"):
        return False
    parent, trigger, position = entity.get("parent"), entity.get("trigger"), entity.get("position")
    return (
        is_object(kind.get("fields") or {}, entity.get("observation"))
        and legal_actions_fit(kind["actions"], entity.get("legal_actions"))
        and (position is None or is_vector(position, {2, 3}))
        and (parent is None or (is_id(parent) and parent != entity["id"]))
        and (trigger is None or (isinstance(trigger, str) and trigger in (kind.get("events") or {})))
        and profile_fits(manifest.get("profiles") or {}, entity)
    )


def legal_actions_fit(actions: dict[str, Json], legal: Json) -> bool:
    return (
        isinstance(legal, list)
        and len(legal) > 0
        and all(isinstance(action, str) and action in actions for action in legal)
        and len(set(legal)) == len(legal)
    )


def profile_fits(profiles: dict[str, Json], entity: dict[str, Json]) -> bool:
    profile = entity.get("profile")
    if profile is None:
        return True
    if not isinstance(profile, str) or profile not in profiles:
        return False
    return profiles[profile].get("type") in (None, entity["type"])
