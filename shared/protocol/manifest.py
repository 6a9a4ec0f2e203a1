"""A game's self-description: entity types and their rules, read from decoded JSON (A2G Manifest). Pure.

Every refusal names the path of the fault; what is allowed and yet looks like a mistake becomes a warning.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import msgspec

from shared.protocol.canonical import canonical_json, hash_of, without_contexts
from shared.protocol.checks import (
    fault,
    inside,
    require_number,
    require_object,
    require_string,
    require_table,
    require_whole,
    unknown_keys,
)
from shared.protocol.contexts import (
    Contexts,
    Profile,
    Scope,
    check_cache_field,
    check_contexts,
    context_warnings,
    parse_contexts,
)
from shared.protocol.fields import FieldType, parse_fields
from shared.protocol.limits import (
    DEFAULT_DECISION_TTL_MS,
    MAX_ACTIONS,
    MAX_CACHE_ENTRIES,
    MAX_CACHE_TTL_MS,
    MAX_CHOICE_CHARS,
    MAX_DECISION_TTL_MS,
    MAX_DESCRIPTION_CHARS,
    MAX_ENTITY_TYPES,
    MAX_EVENTS,
    MAX_INPUT_TOKENS,
    MAX_REFRESH_MS,
    MAX_WARNINGS,
    MAX_WORLD_CHARS,
    MIN_CACHE_TTL_MS,
    MIN_DECISION_TTL_MS,
    MIN_INPUT_TOKENS,
    MIN_REFRESH_MS,
)
from shared.protocol.names import clean_prose, shown

__all__ = [
    "CacheRule",
    "Contexts",
    "EntityType",
    "Manifest",
    "ParsedManifest",
    "Profile",
    "Scope",
    "load_manifest",
    "parse_manifest",
]

PARENT_ACTION = "parent.action"

_MANIFEST_KEYS = frozenset({"world", "world_fields", "scopes", "profiles", "entity_types"})
_TYPE_KEYS = frozenset(
    {
        "description",
        "fields",
        "actions",
        "events",
        "decision_ttl_ms",
        "refresh_ms",
        "perception_radius",
        "max_input_tokens",
        "cache",
    }
)
_CACHE_KEYS = frozenset({"key", "buckets", "ttl_ms"})


@dataclass(frozen=True, slots=True)
class CacheRule:
    """Which situations share a decision (A2G Manifest, "Decision cache"). `buckets` holds ascending
    thresholds by entry of `key`."""

    key: tuple[str, ...]
    buckets: Mapping[str, tuple[float, ...]]
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class EntityType:
    """One kind of entity; `index` is its place in the manifest. Actions and events map to descriptions."""

    name: str
    index: int
    description: str
    fields: Mapping[str, FieldType]
    actions: Mapping[str, str]
    action_names: tuple[str, ...]
    events: Mapping[str, str]
    decision_ttl_ms: int
    refresh_ms: int | None
    perception_radius: float | None
    max_input_tokens: int | None
    cache: CacheRule | None

    @property
    def observe_only(self) -> bool:
        """Whether it is seen by others and never decides."""
        return not self.actions


@dataclass(frozen=True)
class Manifest:
    """The lasting part of a manifest. `hash` is the protocol's, blind to the order of keys; `source` is
    compact JSON that `load_manifest` reads back, in the order sent."""

    world: str
    world_fields: Mapping[str, FieldType]
    entity_types: Mapping[str, EntityType]
    hash: str
    source: bytes

    @cached_property
    def key(self) -> str:
        """Hex BLAKE2b-128 of `source`. Two manifests of one `hash` may list actions in another order;
        whatever depends on the order (masks of actions, prompts) belongs to this key."""
        return hashlib.blake2b(self.source, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    """What a session starts with."""

    manifest: Manifest
    contexts: Contexts
    warnings: tuple[str, ...]


def parse_manifest(raw: object) -> ParsedManifest:
    """Read a manifest from decoded JSON. Raises `InputError` with the path of the first fault."""
    written = require_object(raw, "manifest")
    warnings = unknown_keys(written, _MANIFEST_KEYS, "")
    manifest = _parse_lasting(written, warnings)
    contexts = parse_contexts(written.get("scopes"), written.get("profiles"), warnings)
    check_contexts(contexts, manifest)
    warnings += context_warnings(contexts, manifest)
    warnings += _cache_warnings(manifest, contexts)
    return ParsedManifest(manifest, contexts, _listed(warnings))


def load_manifest(source: bytes) -> Manifest:
    """The manifest whose `source` this is. Raises `InputError` when it is none."""
    return _parse_lasting(require_object(msgspec.json.decode(source), "manifest"), [])


def _parse_lasting(written: Mapping[str, object], warnings: list[str]) -> Manifest:
    world = require_string(_or(written.get("world"), ""), "world", MAX_WORLD_CHARS)
    world_fields = parse_fields(written.get("world_fields"), "world_fields", warnings)
    if written.get("entity_types") is None:
        raise fault("entity_types", "is required")
    table = require_table(written["entity_types"], "entity_types", 1, MAX_ENTITY_TYPES, "types")
    types = {
        name: _parse_type(name, index, value, world_fields, warnings)
        for index, (name, value) in enumerate(table.items())
    }
    if all(entity_type.observe_only for entity_type in types.values()):
        raise fault("entity_types", "at least one type must have actions")
    lasting = without_contexts(written)
    return Manifest(
        world=clean_prose(world),
        world_fields=world_fields,
        entity_types=types,
        hash=hash_of(canonical_json(lasting)),
        source=msgspec.json.encode(lasting),
    )


def _parse_type(
    name: str, index: int, raw: object, world_fields: Mapping[str, FieldType], warnings: list[str]
) -> EntityType:
    path = inside("entity_types", name)
    written = require_object(raw, path)
    warnings += unknown_keys(written, _TYPE_KEYS, path)
    fields = parse_fields(written.get("fields"), inside(path, "fields"), warnings)
    actions = _parse_choices(written.get("actions"), inside(path, "actions"), MAX_ACTIONS, "actions")
    ttl_ms = _whole_or_none(written, "decision_ttl_ms", path, MIN_DECISION_TTL_MS, MAX_DECISION_TTL_MS)
    ttl_ms = DEFAULT_DECISION_TTL_MS if ttl_ms is None else ttl_ms
    description = _or(written.get("description"), "")
    cache = written.get("cache")
    return EntityType(
        name=name,
        index=index,
        description=clean_prose(
            require_string(description, inside(path, "description"), MAX_DESCRIPTION_CHARS)
        ),
        fields=fields,
        actions=actions,
        action_names=tuple(actions),
        events=_parse_choices(written.get("events"), inside(path, "events"), MAX_EVENTS, "events"),
        decision_ttl_ms=ttl_ms,
        refresh_ms=_whole_or_none(written, "refresh_ms", path, MIN_REFRESH_MS, MAX_REFRESH_MS),
        perception_radius=_parse_radius(written.get("perception_radius"), inside(path, "perception_radius")),
        max_input_tokens=_whole_or_none(
            written, "max_input_tokens", path, MIN_INPUT_TOKENS, MAX_INPUT_TOKENS
        ),
        cache=None
        if cache is None
        else _parse_cache(cache, inside(path, "cache"), fields, world_fields, ttl_ms, warnings),
    )


def _parse_choices(raw: object, path: str, most: int, noun: str) -> dict[str, str]:
    table = require_table(raw, path, 0, most, noun)
    return {
        name: clean_prose(require_string(text, inside(path, name), MAX_CHOICE_CHARS))
        for name, text in table.items()
    }


def _parse_radius(raw: object, path: str) -> float | None:
    if raw is None:
        return None
    radius = require_number(raw, path)
    if radius <= 0:
        raise fault(path, "must be greater than 0")
    return radius


def _parse_cache(
    raw: object,
    path: str,
    fields: Mapping[str, FieldType],
    world_fields: Mapping[str, FieldType],
    decision_ttl_ms: int,
    warnings: list[str],
) -> CacheRule:
    written = require_object(raw, path)
    warnings += unknown_keys(written, _CACHE_KEYS, path)
    key = _parse_cache_key(written.get("key"), inside(path, "key"))
    buckets = _parse_buckets(written.get("buckets"), key, inside(path, "buckets"))
    for entry in key:
        _check_cache_entry(entry, entry in buckets, path, fields, world_fields)
    ttl_ms = _whole_or_none(written, "ttl_ms", path, MIN_CACHE_TTL_MS, MAX_CACHE_TTL_MS)
    return CacheRule(key=key, buckets=buckets, ttl_ms=decision_ttl_ms if ttl_ms is None else ttl_ms)


def _parse_cache_key(raw: object, path: str) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise fault(path, "must be an array of field names")
    if len(raw) > MAX_CACHE_ENTRIES:
        raise fault(path, f"must have at most {MAX_CACHE_ENTRIES} entries")
    entries: dict[str, None] = {}
    for entry in raw:
        if not isinstance(entry, str):
            raise fault(path, "must hold strings only")
        if entry in entries:
            raise fault(path, f"{shown(entry)} occurs twice")
        entries[entry] = None
    return tuple(entries)


def _parse_buckets(raw: object, key: tuple[str, ...], path: str) -> dict[str, tuple[float, ...]]:
    buckets: dict[str, tuple[float, ...]] = {}
    for entry, written in require_object({} if raw is None else raw, path).items():
        place = inside(path, entry)
        if entry not in key:
            raise fault(place, "is not in key")
        if not isinstance(written, list):
            raise fault(place, "must be an array of ascending thresholds")
        if len(written) > MAX_CACHE_ENTRIES:
            raise fault(place, f"must have at most {MAX_CACHE_ENTRIES} thresholds")
        thresholds = [require_number(threshold, place) for threshold in written]
        if any(low >= high for low, high in pairwise(thresholds)):
            raise fault(place, "thresholds must ascend")
        buckets[entry] = tuple(thresholds)
    return buckets


def _check_cache_entry(
    entry: str,
    bucketed: bool,
    path: str,
    fields: Mapping[str, FieldType],
    world_fields: Mapping[str, FieldType],
) -> None:
    """Judge an entry of a cache key; a `scope.` field is judged with the scopes that declare it."""
    if entry == PARENT_ACTION:
        if bucketed:
            raise fault(inside(inside(path, "buckets"), entry), "only a number can have buckets")
        return
    prefix, dot, name = entry.partition(".")
    if dot and (prefix not in ("world", "scope") or not name or "." in name):
        raise fault(
            inside(path, "key"),
            f"{shown(entry)} must be a field without a dot, world.<field>, scope.<field> or parent.action",
        )
    if dot and prefix == "scope":
        return
    declared = world_fields.get(name) if dot else fields.get(entry)
    if declared is None:
        raise fault(inside(path, "key"), f"{shown(entry)} is not declared")
    check_cache_field(declared, entry, bucketed, path)


def _cache_warnings(manifest: Manifest, contexts: Contexts) -> list[str]:
    declared = {name for scope in contexts.scopes.values() for name in scope.fields}
    warnings = []
    for entity_type in manifest.entity_types.values():
        if entity_type.cache is None:
            continue
        path = inside(inside(inside("entity_types", entity_type.name), "cache"), "key")
        if not entity_type.cache.key:
            warnings.append(f"{path}: is empty, so all situations of this type share one decision")
        warnings += [
            f"{path}: no scope declares {shown(entry)}, it counts as absent"
            for entry in entity_type.cache.key
            if entry.startswith("scope.") and entry.removeprefix("scope.") not in declared
        ]
    return warnings


def _listed(warnings: list[str]) -> tuple[str, ...]:
    """As many warnings as a reply should carry; the rest is counted."""
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    return (*warnings[:MAX_WARNINGS], f"{len(warnings) - MAX_WARNINGS} more warnings")


def _whole_or_none(written: Mapping[str, object], key: str, path: str, least: int, most: int) -> int | None:
    value = written.get(key)
    return None if value is None else require_whole(value, inside(path, key), least, most)


def _or(value: object, default: object) -> object:
    """`value`, or `default` where it is null: null for an optional key is as if absent (DESIGN)."""
    return default if value is None else value
