"""Scopes and profiles of a session: validated and changed as a whole only (A2G Context, "Rules"). Pure.

Everything is kept in the order of names, so that equal contexts are equal in every process, whatever the
order in which a game sent their keys.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from shared.protocol.canonical import canonical_json
from shared.protocol.checks import (
    fault,
    inside,
    require_name,
    require_object,
    require_string,
    require_table,
    unknown_keys,
)
from shared.protocol.fields import FieldType, declared_fields, parse_fields
from shared.protocol.limits import MAX_PROFILE_CHARS, MAX_PROFILES, MAX_SCOPE_CHARS, MAX_SCOPES
from shared.protocol.names import clean_prose, shown

if TYPE_CHECKING:
    from shared.protocol.manifest import Manifest

Entry = TypeVar("Entry")

_SCOPE_KEYS = frozenset({"parent", "text", "fields"})
_PROFILE_KEYS = frozenset({"type", "text"})


@dataclass(frozen=True, slots=True)
class Scope:
    """A block of static context; `fields` is the state that exists only inside it."""

    name: str
    parent: str | None
    text: str
    fields: Mapping[str, FieldType]


@dataclass(frozen=True, slots=True)
class Profile:
    """Static text about one character; `type` is the only entity type that may use it, None for any."""

    name: str
    type: str | None
    text: str


@dataclass(frozen=True)
class Contexts:
    """A session's scopes and profiles by name, valid together. Never changed in place."""

    scopes: Mapping[str, Scope] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    @cached_property
    def source(self) -> bytes:
        """Canonical JSON that `load_contexts` reads back."""
        return canonical_json(
            {
                "scopes": {name: scope_object(scope) for name, scope in self.scopes.items()},
                "profiles": {name: profile_object(profile) for name, profile in self.profiles.items()},
            }
        )

    @cached_property
    def hash(self) -> str:
        """Hex BLAKE2b-128 of `source`: equal contexts have equal hashes."""
        return hashlib.blake2b(self.source, digest_size=16).hexdigest()

    def chain(self, scope_name: str) -> tuple[Scope, ...]:
        """The scopes from the root to `scope_name`. Raises KeyError for an unknown scope."""
        chain = [self.scopes[scope_name]]
        while (parent := chain[-1].parent) is not None:
            chain.append(self.scopes[parent])
        return tuple(reversed(chain))

    def updated(
        self,
        scopes: Mapping[str, object] | None,
        profiles: Mapping[str, object] | None,
        manifest: "Manifest",
    ) -> "Contexts":
        """These contexts with an update's entries added or replaced, and those that are null removed.

        Raises `InputError` when the result is not valid as a whole; nothing changes then.
        """
        warnings: list[str] = []
        changed = Contexts(
            _merged(self.scopes, scopes, "scopes", partial(_parse_scope, warnings=warnings)),
            _merged(self.profiles, profiles, "profiles", partial(_parse_profile, warnings=warnings)),
        )
        check_contexts(changed, manifest)
        return changed


def parse_contexts(scopes: object, profiles: object, warnings: list[str]) -> Contexts:
    """A manifest's `scopes` and `profiles`; `check_contexts` must follow. Raises `InputError`."""
    scope_table = require_table(scopes, "scopes", 0, MAX_SCOPES, "scopes")
    profile_table = require_table(profiles, "profiles", 0, MAX_PROFILES, "profiles")
    return Contexts(
        {name: _parse_scope(name, scope_table[name], warnings) for name in sorted(scope_table)},
        {name: _parse_profile(name, profile_table[name], warnings) for name in sorted(profile_table)},
    )


def load_contexts(source: bytes, manifest: "Manifest") -> Contexts:
    """The contexts whose `source` this is. Raises `InputError` when it is none that `manifest` allows."""
    raw = require_object(msgspec.json.decode(source), "")
    contexts = parse_contexts(raw.get("scopes"), raw.get("profiles"), [])
    check_contexts(contexts, manifest)
    return contexts


def check_contexts(contexts: Contexts, manifest: "Manifest") -> None:
    """Judge the contexts as a whole, and the cache keys that name their fields. Raises `InputError`."""
    if len(contexts.scopes) > MAX_SCOPES:
        raise fault("scopes", f"must have at most {MAX_SCOPES} scopes")
    if len(contexts.profiles) > MAX_PROFILES:
        raise fault("profiles", f"must have at most {MAX_PROFILES} profiles")
    _check_parents(contexts.scopes)
    for name in contexts.scopes:
        _check_field_names(contexts.chain(name))
    _check_scope_keys(contexts.scopes, manifest)


def context_warnings(contexts: Contexts, manifest: "Manifest") -> Iterator[str]:
    """What is allowed and yet looks like a mistake."""
    for profile in contexts.profiles.values():
        if profile.type is not None and profile.type not in manifest.entity_types:
            path = inside(inside("profiles", profile.name), "type")
            yield f"{path}: no such entity type, so no entity can use it"


def scope_object(scope: Scope) -> dict[str, object]:
    """The scope as a manifest writes it, without keys that hold nothing."""
    written: dict[str, object] = {"text": scope.text}
    if scope.parent is not None:
        written["parent"] = scope.parent
    if scope.fields:
        written["fields"] = declared_fields(scope.fields)
    return written


def profile_object(profile: Profile) -> dict[str, object]:
    """The profile as a manifest writes it, without keys that hold nothing."""
    return {"text": profile.text} if profile.type is None else {"text": profile.text, "type": profile.type}


def _merged(
    current: Mapping[str, Entry],
    update: Mapping[str, object] | None,
    path: str,
    parse: Callable[[str, object], Entry],
) -> dict[str, Entry]:
    merged = dict(current)
    for name, raw in (update or {}).items():
        require_name(name, inside(path, name))
        if raw is None:
            merged.pop(name, None)
        else:
            merged[name] = parse(name, raw)
    return {name: merged[name] for name in sorted(merged)}


def _parse_scope(name: str, raw: object, warnings: list[str]) -> Scope:
    path = inside("scopes", name)
    written = require_object(raw, path)
    warnings += unknown_keys(written, _SCOPE_KEYS, path)
    parent = written.get("parent")
    fields = parse_fields(written.get("fields"), inside(path, "fields"), warnings)
    return Scope(
        name=name,
        parent=None if parent is None else require_name(parent, inside(path, "parent")),
        text=clean_prose(require_string(written.get("text"), inside(path, "text"), MAX_SCOPE_CHARS)),
        fields={field_name: fields[field_name] for field_name in sorted(fields)},
    )


def _parse_profile(name: str, raw: object, warnings: list[str]) -> Profile:
    path = inside("profiles", name)
    written = require_object(raw, path)
    warnings += unknown_keys(written, _PROFILE_KEYS, path)
    type_name = written.get("type")
    return Profile(
        name=name,
        type=None if type_name is None else require_name(type_name, inside(path, "type")),
        text=clean_prose(require_string(written.get("text"), inside(path, "text"), MAX_PROFILE_CHARS)),
    )


def _check_parents(scopes: Mapping[str, Scope]) -> None:
    """Every parent exists and no chain returns to itself."""
    rooted: set[str] = set()
    for start in scopes.values():
        walked: dict[str, None] = {}
        scope = start
        while scope.name not in rooted:
            path = inside(inside("scopes", scope.name), "parent")
            if scope.name in walked:
                raise fault(path, "the scopes form a cycle")
            walked[scope.name] = None
            if scope.parent is None:
                break
            if scope.parent not in scopes:
                raise fault(path, "no such scope")
            scope = scopes[scope.parent]
        rooted.update(walked)


def _check_field_names(chain: tuple[Scope, ...]) -> None:
    seen: set[str] = set()
    for scope in chain:
        for name in scope.fields:
            if name in seen:
                path = inside(inside(inside("scopes", scope.name), "fields"), name)
                raise fault(path, "a scope above it has a field of this name")
        seen.update(scope.fields)


def _check_scope_keys(scopes: Mapping[str, Scope], manifest: "Manifest") -> None:
    """What a cache key reads from a scope has a type that it can hold, whichever scope declares it."""
    for entity_type in manifest.entity_types.values():
        if entity_type.cache is None:
            continue
        for entry in entity_type.cache.key:
            prefix, dot, name = entry.partition(".")
            if not dot or prefix != "scope":
                continue
            for scope in scopes.values():
                declared = scope.fields.get(name)
                if declared is None:
                    continue
                path = inside(inside("entity_types", entity_type.name), "cache")
                check_cache_field(declared, entry, entry in entity_type.cache.buckets, path)


def check_cache_field(declared: FieldType, entry: str, bucketed: bool, path: str) -> None:
    """Judge the field that entry `entry` of the cache rule at `path` reads. Raises `InputError`."""
    if not declared.is_scalar:
        raise fault(inside(path, "key"), f"{shown(entry)} is a {declared.kind}, which no cache key can hold")
    if bucketed and not declared.is_numeric:
        raise fault(inside(inside(path, "buckets"), entry), "only a number can have buckets")
