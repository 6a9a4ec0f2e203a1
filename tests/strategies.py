"""Hypothesis strategies for A2G messages: manifests, and decide requests that a manifest allows.

`FIELD_DECLARATIONS` and `FIELD_VALUES` hold one strategy per field type; a test demands that they cover the
registry of field types.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from shared.protocol.contexts import Contexts
from shared.protocol.fields import FieldType
from shared.protocol.limits import MAX_EPOCH
from shared.protocol.manifest import Manifest

Json = Any

# Letters beside what tends to break things: quotes, backslashes, dots, spaces, non-ASCII, astral characters.
NAME_ALPHABET = "abcxyz_09 .\"\\'`$[]{}/é日😀"
names = st.text(NAME_ALPHABET, min_size=1, max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False, width=64)
).filter(lambda number: abs(number) < 1e300)
enum_values = st.one_of(st.text(NAME_ALPHABET, max_size=6), st.integers(-9, 9), st.sampled_from([0.5, -1.25]))

json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

_simple_declarations: Mapping[str, st.SearchStrategy[Json]] = {
    "number": st.just("number"),
    "boolean": st.just("boolean"),
    "string": st.just("string"),
    "enum": st.lists(enum_values, min_size=1, max_size=6, unique=True),
    "vector2": st.just("vector2"),
    "vector3": st.just("vector3"),
    "entity_ref": st.just("entity_ref"),
}
FIELD_DECLARATIONS: Mapping[str, st.SearchStrategy[Json]] = {
    **_simple_declarations,
    "list": st.fixed_dictionaries(
        {
            "list": st.dictionaries(names, st.one_of(*_simple_declarations.values()), min_size=1, max_size=3),
            "max": st.integers(1, 32),
        }
    ),
}


def _same_number(value: Json) -> st.SearchStrategy[Json]:
    """A number in either spelling: engines send 2 or 2.0."""
    if isinstance(value, str) or value != int(value):
        return st.just(value)
    return st.sampled_from([int(value), float(value)])


FIELD_VALUES: Mapping[str, Callable[[FieldType], st.SearchStrategy[Json]]] = {
    "number": lambda _: numbers,
    "boolean": lambda _: st.booleans(),
    "string": lambda _: st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    "enum": lambda field: st.sampled_from(field.values).flatmap(_same_number),
    "vector2": lambda _: st.lists(numbers, min_size=2, max_size=2),
    "vector3": lambda _: st.lists(numbers, min_size=3, max_size=3),
    "entity_ref": lambda _: st.none() | names,
    "list": lambda field: st.lists(objects(field.sub), max_size=min(field.max, 3)),
}


def field_value(field: FieldType) -> st.SearchStrategy[Json]:
    """A value that `field` accepts."""
    return FIELD_VALUES[field.kind](field)


def objects(fields: Mapping[str, FieldType]) -> st.SearchStrategy[dict[str, Json]]:
    """An object with exactly `fields`."""
    return st.fixed_dictionaries({name: field_value(field) for name, field in fields.items()})


def field_tables(max_size: int = 5) -> st.SearchStrategy[dict[str, Json]]:
    """The declaration of some fields."""
    return st.dictionaries(names, st.one_of(*FIELD_DECLARATIONS.values()), max_size=max_size)


def _is_scalar(declaration: Json) -> bool:
    return isinstance(declaration, list) or declaration in ("number", "boolean", "string")


@st.composite
def cache_rules(
    draw: st.DrawFn, fields: dict[str, Json], world: dict[str, Json], scopes: dict[str, Json]
) -> dict[str, Json]:
    """A cache rule over what the manifest declares."""
    entries = {name: kind for name, kind in fields.items() if "." not in name}
    entries |= {f"world.{name}": kind for name, kind in world.items() if "." not in name}
    for scope in scopes.values():
        entries |= {f"scope.{name}": kind for name, kind in scope["fields"].items() if "." not in name}
    usable = [entry for entry, kind in entries.items() if _is_scalar(kind)]
    key = draw(st.lists(st.sampled_from([*usable, "parent.action"]), unique=True, max_size=4))
    thresholds = st.lists(numbers.map(float), min_size=1, max_size=3, unique=True).map(sorted)
    buckets = {
        entry: draw(thresholds) for entry in key if entries.get(entry) == "number" and draw(st.booleans())
    }
    return {"key": key, "buckets": buckets, "ttl_ms": draw(st.integers(1000, 600_000))}


@st.composite
def scope_tables(draw: st.DrawFn) -> dict[str, Json]:
    """Some scopes; field names carry the scope's number, so that no two scopes share one."""
    scopes: dict[str, Json] = {}
    for index, name in enumerate(draw(st.lists(names, unique=True, max_size=4))):
        fields = draw(st.dictionaries(names, st.one_of(*_simple_declarations.values()), max_size=2))
        scopes[name] = {"text": draw(texts), "fields": {f"{index}{key}": fields[key] for key in fields}}
        parent = draw(st.sampled_from([None, *list(scopes)[:-1]]))
        if parent is not None:
            scopes[name]["parent"] = parent
    return scopes


@st.composite
def entity_types(
    draw: st.DrawFn, world: dict[str, Json], scopes: dict[str, Json], acting: bool
) -> dict[str, Json]:
    """One entity type."""
    fields = draw(field_tables())
    written: dict[str, Json] = {
        "description": draw(texts),
        "fields": fields,
        "actions": draw(st.dictionaries(names, texts, min_size=1, max_size=6)) if acting else {},
    }
    optional: dict[str, st.SearchStrategy[Json]] = {
        "events": st.dictionaries(names, texts, max_size=3),
        "decision_ttl_ms": st.integers(1000, 120_000),
        "refresh_ms": st.integers(1000, 600_000),
        "perception_radius": st.floats(0.001, 1e6),
        "max_input_tokens": st.integers(50, 20_000),
        "cache": cache_rules(fields, world, scopes),
    }
    return written | draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Json]:
    """A valid manifest as decoded JSON, with at least one acting type."""
    world = draw(field_tables(max_size=4))
    scopes = draw(scope_tables())
    type_names = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    types = {
        name: draw(entity_types(world, scopes, acting=index == 0 or draw(st.booleans())))
        for index, name in enumerate(type_names)
    }
    profile_types = st.sampled_from([None, *type_names])
    return {
        "world": draw(texts),
        "world_fields": world,
        "scopes": scopes,
        "profiles": draw(
            st.dictionaries(names, st.fixed_dictionaries({"text": texts, "type": profile_types}), max_size=3)
        ),
        "entity_types": types,
    }


@st.composite
def _entity(draw: st.DrawFn, manifest: Manifest, contexts: Contexts, entity_id: str) -> dict[str, Json]:
    acting = [kind for kind in manifest.entity_types.values() if not kind.observe_only]
    kind = draw(st.sampled_from(acting))
    profiles = [profile.name for profile in contexts.profiles.values() if profile.type in (None, kind.name)]
    optional: dict[str, st.SearchStrategy[Json]] = {
        "position": st.lists(numbers, min_size=2, max_size=3),
        "parent": names.filter(lambda parent: parent != entity_id),
        "trigger": st.sampled_from([None, *kind.events]),
        "profile": st.sampled_from([None, *profiles]),
        "unheard_of": json_values,
    }
    return {
        "id": entity_id,
        "type": kind.name,
        "observation": draw(objects(kind.fields)),
        "legal_actions": draw(st.lists(st.sampled_from(kind.action_names), min_size=1, unique=True)),
    } | draw(st.fixed_dictionaries({}, optional=optional))


@st.composite
def decide_requests(draw: st.DrawFn, manifest: Manifest, contexts: Contexts) -> dict[str, Json]:
    """A decide request that a session with this manifest and these contexts accepts."""
    ids = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    request: dict[str, Json] = {
        "client_id": draw(names),
        "epoch": draw(st.integers(0, MAX_EPOCH) | st.integers(0, 2**40).map(float)),
        "world": draw(objects(manifest.world_fields)),
        "entities": [draw(_entity(manifest, contexts, entity_id)) for entity_id in ids],
    }
    scope = draw(st.sampled_from([None, *contexts.scopes]))
    if scope is not None:
        fields = {name: kind for link in contexts.chain(scope) for name, kind in link.fields.items()}
        request["scope"] = scope
        if fields or draw(st.booleans()):
            request["scope_state"] = draw(objects(fields))
    return request
