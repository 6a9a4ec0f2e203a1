"""The decision cache's key: which situations are one (A2G Manifest, "Decision cache"). Pure.

The key is the BLAKE2b-128 of the compact JSON array

    [manifest hash, type, scope name, [texts of its chain, root first], profile, its text,
     trigger, [legal actions, sorted], [values: observation, world, scope, the parent's action]]

with null for what is absent and the values of each kind in the order of the rule's `key`. A JSON array has
one reading, so different parts never make the same key by concatenation. The first line is the same for most
entities of a session: it is hashed once and copied.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from shared.protocol.contexts import Contexts
from shared.protocol.decide import DecideRequest, Entity
from shared.protocol.fields import FieldType
from shared.protocol.fragments import exact_number_text
from shared.protocol.manifest import PARENT_ACTION, CacheRule, EntityType, Manifest

DIGEST_BYTES = 16  # 128 bits: no two situations of a game ever meet by chance

_PREFIXES_KEPT = 1024  # per type: combinations of contexts, scope and profile in use at a time
_ACTION_SETS_KEPT = 1024  # per type
_ABSENT = "null"  # no field's value is null, so absence is unlike every presence

ValueText = Callable[[Any], str]


class _Reader(NamedTuple):
    """Where in a Struct a value stands, and how it is written."""

    place: int
    text: ValueText


class _Prefix(NamedTuple):
    """The fed hash of a key's first parts, and how this chain's state is read (None: absent in it)."""

    hasher: blake2b
    scope_readers: tuple[_Reader | None, ...]


class CacheKey:
    """Digests the situations of one entity type; made by `compile_cache_key`."""

    def __init__(self, entity_type: EntityType, rule: CacheRule, manifest: Manifest) -> None:
        self._start = f"[{encode_basestring(manifest.hash)},{encode_basestring(entity_type.name)},"
        self._buckets = rule.buckets
        self._observed = self._readers(_names(rule, ""), entity_type.fields, "")
        self._world = self._readers(_names(rule, "world."), manifest.world_fields, "world.")
        self._scope_names = _names(rule, "scope.")
        self._reads_parent = PARENT_ACTION in rule.key
        self._prefixes: dict[tuple[str, str | None, str | None], _Prefix] = {}
        self._trigger_texts = {None: _ABSENT} | {name: encode_basestring(name) for name in entity_type.events}
        self._actions_text = _actions_text(entity_type.action_names)

    def digest(
        self, request: DecideRequest, entity: Entity, contexts: Contexts, parent_action: str | None
    ) -> bytes:
        """16 bytes for `entity`'s situation; equal situations have equal digests in every process.

        `parent_action` is the action of its parent's latest decision, None when there is none.
        """
        prefix = self._prefixes.get((contexts.hash, request.scope, entity.profile))
        if prefix is None:
            prefix = self._keep_prefix(contexts, request.scope, entity.profile)
        values = _texts(self._observed, entity.observation)
        if self._world:
            values += _texts(self._world, request.world)
        if prefix.scope_readers:
            values += _texts(prefix.scope_readers, request.scope_state)
        if self._reads_parent:
            values.append(_ABSENT if parent_action is None else encode_basestring(parent_action))
        rest = (
            f",{self._trigger_texts[entity.trigger]},{self._actions_text(entity.legal_mask)}"
            f",[{','.join(values)}]]"
        )
        hasher = prefix.hasher.copy()
        hasher.update(rest.encode())
        return hasher.digest()

    def _keep_prefix(self, contexts: Contexts, scope: str | None, profile: str | None) -> _Prefix:
        if len(self._prefixes) >= _PREFIXES_KEPT:
            self._prefixes.clear()
        chain = () if scope is None else contexts.chain(scope)
        text = self._start + ",".join(
            (
                _string_or_null(scope),
                _array([part.text for part in chain]),
                _string_or_null(profile),
                _string_or_null(None if profile is None else contexts.profiles[profile].text),
            )
        )
        state_fields = {name: kind for part in chain for name, kind in part.fields.items()}
        prefix = _Prefix(
            blake2b(text.encode(), digest_size=DIGEST_BYTES),
            self._readers(self._scope_names, state_fields, "scope."),
        )
        self._prefixes[contexts.hash, scope, profile] = prefix
        return prefix

    def _readers(
        self, names: Sequence[str], fields: Mapping[str, FieldType], prefix: str
    ) -> tuple[_Reader | None, ...]:
        return tuple(self._reader(name, fields, prefix) for name in names)

    def _reader(self, name: str, fields: Mapping[str, FieldType], prefix: str) -> _Reader | None:
        if name not in fields:
            return None
        return _Reader(list(fields).index(name), _value_text(fields[name], self._buckets.get(prefix + name)))


def compile_cache_key(entity_type: EntityType, manifest: Manifest) -> CacheKey | None:
    """The key of a type's decision cache; None for a type without one."""
    return None if entity_type.cache is None else CacheKey(entity_type, entity_type.cache, manifest)


def _names(rule: CacheRule, prefix: str) -> list[str]:
    """Fields that the rule's key names with `prefix`; with an empty one, those of the observation."""
    if not prefix:
        return [entry for entry in rule.key if "." not in entry]
    return [entry.removeprefix(prefix) for entry in rule.key if entry.startswith(prefix)]


def _value_text(field: FieldType, thresholds: tuple[float, ...] | None) -> ValueText:
    """How a field's value enters the key: numbers by band or exactly, so that 1 and 1.0 are one."""
    if thresholds is not None:
        bands = tuple(str(band) for band in range(len(thresholds) + 1))
        return lambda value: bands[bisect_right(thresholds, value)]  # equal to a threshold: upper band
    match field.kind:
        case "number":
            return exact_number_text
        case "boolean":
            return {True: "true", False: "false"}.__getitem__
        case "enum":
            return {value: _enum_text(value) for value in field.values}.__getitem__
        case _:
            return encode_basestring


def _enum_text(value: str | float) -> str:
    return encode_basestring(value) if isinstance(value, str) else exact_number_text(value)


def _texts(readers: Sequence[_Reader | None], struct: msgspec.Struct | None) -> list[str]:
    values = () if struct is None else astuple(struct)
    return [_ABSENT if reader is None else reader.text(values[reader.place]) for reader in readers]


def _actions_text(action_names: Sequence[str]) -> Callable[[int], str]:
    """The set of legal actions as a sorted array, by mask.

    Two manifests of one hash may declare their actions in another order: the mask is not part of the key.
    """

    @lru_cache(maxsize=_ACTION_SETS_KEPT)
    def text(legal_mask: int) -> str:
        return _array(sorted([name for bit, name in enumerate(action_names) if legal_mask >> bit & 1]))

    return text


def _array(texts: Sequence[str]) -> str:
    return f"[{','.join([encode_basestring(text) for text in texts])}]"


def _string_or_null(text: str | None) -> str:
    return _ABSENT if text is None else encode_basestring(text)
