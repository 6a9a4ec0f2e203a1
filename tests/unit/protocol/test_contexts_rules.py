"""Rules of scopes and profiles as a whole (A2G Manifest, "Scopes", "Profiles"; A2G Context, "Rules")."""

from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.contexts import Contexts, Scope, load_contexts, profile_object, scope_object
from shared.protocol.manifest import ParsedManifest, parse_manifest

FOREST = {"text": "Trees.", "fields": {"fog": "number", "air": ["thin", "thick"]}}
GLADE = {"parent": "forest", "text": "Open.", "fields": {"near": {"list": {"n": "number"}, "max": 2}}}


def opened(**keys: Any) -> ParsedManifest:
    cache = keys.pop("cache", None)
    return parse_manifest({"entity_types": {"bee": {"actions": {"idle": ""}, "cache": cache}}, **keys})


def refusal(session: ParsedManifest, scopes: Any = None, profiles: Any = None) -> str:
    with pytest.raises(InputError) as refused:
        session.contexts.updated(scopes, profiles, session.manifest)
    return str(refused.value)


def test_a_chain_runs_from_the_root() -> None:
    contexts = opened(scopes={"glade": GLADE, "forest": FOREST}).contexts
    assert [scope.name for scope in contexts.chain("glade")] == ["forest", "glade"]
    assert [scope.name for scope in contexts.chain("forest")] == ["forest"]


def test_equal_contexts_have_equal_hashes_and_sources_whatever_the_order_of_keys() -> None:
    profiles = {"b": {"text": "B", "type": "bee"}, "a": {"text": "A"}}
    one = opened(scopes={"forest": FOREST, "glade": GLADE}, profiles=profiles).contexts
    turned_fields = {"air": ["thin", "thick"], "fog": "number"}
    other = opened(
        scopes={"glade": dict(reversed(GLADE.items())), "forest": FOREST | {"fields": turned_fields}},
        profiles=dict(reversed(profiles.items())),
    ).contexts
    assert (one.hash, one.source) == (other.hash, other.source)
    assert list(one.scopes) == list(other.scopes)
    assert list(one.scopes["forest"].fields) == list(other.scopes["forest"].fields)


@pytest.mark.parametrize(
    "changed",
    [
        {"scopes": {"forest": FOREST | {"text": "Trees"}}},
        {"scopes": {"forest": FOREST | {"fields": {"fog": "boolean", "air": ["thin", "thick"]}}}},
        {"scopes": {"forest": FOREST | {"fields": {"fog": "number", "air": ["thick", "thin"]}}}},
        {"scopes": {"woods": FOREST}},
        {"scopes": {"forest": FOREST}, "profiles": {"old": {"text": ""}}},
    ],
)
def test_what_differs_has_another_hash(changed: dict[str, Any]) -> None:
    assert opened(**changed).contexts.hash != opened(scopes={"forest": FOREST}).contexts.hash


def test_contexts_survive_their_source() -> None:
    session = opened(
        scopes={"glade": GLADE, "forest": FOREST}, profiles={"old": {"text": "Old.", "type": "bat"}}
    )
    loaded = load_contexts(session.contexts.source, session.manifest)
    assert loaded == session.contexts
    assert loaded.hash == session.contexts.hash


def test_objects_are_written_without_empty_keys() -> None:
    contexts = opened(scopes={"forest": FOREST, "glade": GLADE}, profiles={"old": {"text": "Old."}}).contexts
    assert scope_object(contexts.scopes["glade"]) == GLADE
    assert scope_object(Scope("a", None, "A", {})) == {"text": "A"}
    assert profile_object(contexts.profiles["old"]) == {"text": "Old."}


def test_an_update_leaves_the_former_contexts_alone() -> None:
    session = opened(scopes={"forest": FOREST})
    updated = session.contexts.updated({"forest": None, "cave": {"text": "Dark."}}, None, session.manifest)
    assert (list(updated.scopes), list(session.contexts.scopes)) == (["cave"], ["forest"])


def test_removing_what_is_not_there_changes_nothing() -> None:
    session = opened(scopes={"forest": FOREST})
    assert session.contexts.updated({"cave": None}, {"old": None}, session.manifest) == session.contexts


@pytest.mark.parametrize("name", ["", "a\nb", "n" * 129])
def test_names_are_judged_even_when_removed(name: str) -> None:
    assert refusal(opened(), {name: None}).startswith("scopes.")
    assert refusal(opened(), None, {name: {"text": ""}}).startswith("profiles.")


@pytest.mark.parametrize("scope", [{}, {"text": None}, {"text": 5}, [], "text"])
def test_a_scope_needs_a_text(scope: Any) -> None:
    assert refusal(opened(), {"cave": scope}).startswith("scopes.cave")


@pytest.mark.parametrize("profile", [{}, {"text": None}, {"text": 5}, [], {"text": "", "type": 5}])
def test_a_profile_needs_a_text(profile: Any) -> None:
    assert refusal(opened(), None, {"old": profile}).startswith("profiles.old")


def test_a_long_chain_is_followed_to_its_root() -> None:
    scopes = {f"s{i}": {"text": "", "parent": f"s{i + 1}"} for i in range(63)} | {"s63": {"text": ""}}
    assert len(opened(scopes=scopes).contexts.chain("s0")) == 64


def test_a_cycle_of_three_beside_a_sound_chain() -> None:
    scopes = {
        "a": {"text": ""},
        "b": {"text": "", "parent": "a"},
        "x": {"text": "", "parent": "y"},
        "y": {"text": "", "parent": "z"},
        "z": {"text": "", "parent": "x"},
    }
    assert refusal(opened(), scopes) == "scopes.x.parent: the scopes form a cycle"


def test_a_field_name_may_not_return_three_levels_down() -> None:
    scopes = {
        "a": {"text": "", "fields": {"fog": "number"}},
        "b": {"text": "", "parent": "a"},
        "c": {"text": "", "parent": "b", "fields": {"fog": "number"}},
    }
    assert refusal(opened(), scopes) == "scopes.c.fields.fog: a scope above it has a field of this name"


def test_an_update_keeps_the_types_that_cache_keys_read() -> None:
    session = opened(cache={"key": ["scope.fog"], "buckets": {"scope.fog": [0.5]}})
    session.contexts.updated({"a": {"text": "", "fields": {"fog": "number"}}}, None, session.manifest)
    assert "scope.fog is a vector2" in refusal(session, {"a": {"text": "", "fields": {"fog": "vector2"}}})
    assert "only a number" in refusal(session, {"a": {"text": "", "fields": {"fog": "string"}}})


def test_no_contexts_is_a_value_like_any_other() -> None:
    assert Contexts().hash == opened().contexts.hash
    assert Contexts().source == b'{"profiles":{},"scopes":{}}'
