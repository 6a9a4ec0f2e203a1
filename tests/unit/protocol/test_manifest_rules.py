"""Manifest rules (A2G Manifest; the table of open questions in the design) beyond the published vectors."""

from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.limits import MAX_ERROR_CHARS, MAX_WARNINGS
from shared.protocol.manifest import Manifest, load_manifest, parse_manifest
from shared.protocol.session import decode_session


def bee(**keys: Any) -> dict[str, Any]:
    """A manifest of one type, with `keys` in the type."""
    return {"entity_types": {"bee": {"actions": {"idle": "Stay", "flee": "Run"}, **keys}}}


def problem(raw: Any) -> str:
    with pytest.raises(InputError) as refused:
        parse_manifest(raw)
    return str(refused.value)


def manifest(**keys: Any) -> Manifest:
    return parse_manifest(bee(**keys)).manifest


def test_defaults_of_a_type() -> None:
    kind = manifest().entity_types["bee"]
    assert (kind.description, kind.fields, kind.events) == ("", {}, {})
    assert (kind.decision_ttl_ms, kind.refresh_ms, kind.perception_radius) == (12_000, None, None)
    assert (kind.max_input_tokens, kind.cache, kind.observe_only) == (None, None, False)
    assert (kind.index, kind.action_names) == (0, ("idle", "flee"))


def test_types_actions_and_fields_keep_the_order_sent() -> None:
    raw = {
        "entity_types": {
            "z": {"actions": {"y": "", "b": ""}, "fields": {"q": "number", "a": "number"}},
            "a": {"actions": {}},
        }
    }
    parsed = parse_manifest(raw).manifest
    assert list(parsed.entity_types) == ["z", "a"]
    assert [kind.index for kind in parsed.entity_types.values()] == [0, 1]
    assert parsed.entity_types["z"].action_names == ("y", "b")
    assert list(load_manifest(parsed.source).entity_types["z"].fields) == ["q", "a"]


def test_one_hash_two_orders_two_keys() -> None:
    one = parse_manifest({"entity_types": {"bee": {"actions": {"a": "", "b": ""}}}}).manifest
    other = parse_manifest({"entity_types": {"bee": {"actions": {"b": "", "a": ""}}}}).manifest
    assert one.hash == other.hash
    assert one.key != other.key


def test_null_for_an_optional_key_is_as_if_absent() -> None:
    nulls = dict.fromkeys(
        ["description", "fields", "events", "decision_ttl_ms", "refresh_ms", "perception_radius", "cache"]
    )
    raw = bee(**nulls) | dict.fromkeys(["world", "world_fields", "scopes", "profiles"])
    assert parse_manifest(raw).manifest.entity_types == manifest().entity_types
    assert problem({"entity_types": None}) == "entity_types: is required"


def test_texts_lose_control_characters_but_keep_their_layout() -> None:
    parsed = parse_manifest(bee(description="One.\n\tTwo.\x07\x85") | {"world": "A\r\nB\x00"})
    assert parsed.manifest.world == "A\nB"
    assert parsed.manifest.entity_types["bee"].description == "One.\n\tTwo."


def test_length_counts_characters_before_they_are_removed() -> None:
    assert problem(bee(description="\x07" * 1001)) == (
        "entity_types.bee.description: must have at most 1000 characters"
    )


@pytest.mark.parametrize("value", [7.5, True, "7", [], float("inf"), float("nan"), 10**400, -(10**400)])
def test_a_whole_number_is_whole(value: Any) -> None:
    assert problem(bee(max_input_tokens=value)) == (
        "entity_types.bee.max_input_tokens: must be a whole number of 50–20000"
    )


def test_a_whole_number_may_be_spelled_as_a_fraction() -> None:
    assert manifest(max_input_tokens=600.0, refresh_ms=1e3).entity_types["bee"].max_input_tokens == 600


@pytest.mark.parametrize("radius", [0, -1, 0.0, True, "1", float("inf"), 10**400])
def test_a_radius_is_a_positive_number(radius: Any) -> None:
    assert problem(bee(perception_radius=radius)).startswith("entity_types.bee.perception_radius: ")


def test_enums_mix_strings_and_numbers_and_may_hold_the_empty_string() -> None:
    field = manifest(fields={"mood": ["", "1", 1.0, 2.5]}).entity_types["bee"].fields["mood"]
    assert field.values == ("", "1", 1, 2.5)
    assert not field.is_numeric


def test_enum_numbers_are_kept_as_doubles_hold_them() -> None:
    values = manifest(fields={"mood": [2.0, 2**53, 1e300]}).entity_types["bee"].fields["mood"].values
    assert [type(value) for value in values] == [int, int, float]


@pytest.mark.parametrize("values", [[1, 1.0], ["a", "a"], [0, -0.0], [2**53, 2**53 + 1]])
def test_an_enum_that_repeats_a_value_is_refused(values: list[Any]) -> None:
    assert problem(bee(fields={"mood": values})) == "entity_types.bee.fields.mood: lists a value twice"


@pytest.mark.parametrize("values", [[None], [[1]], [float("inf")], [10**400], [True], ["a", {}]])
def test_an_enum_holds_strings_and_finite_numbers(values: list[Any]) -> None:
    assert "must be strings or finite numbers" in problem(bee(fields={"mood": values}))


@pytest.mark.parametrize("sub", [{}, None, [], "number"])
def test_a_list_needs_sub_fields(sub: Any) -> None:
    assert problem(bee(fields={"near": {"list": sub, "max": 3}})).startswith(
        "entity_types.bee.fields.near.list: "
    )


@pytest.mark.parametrize("most", [1.5, True, "3", None, 0, 33])
def test_a_list_has_a_whole_maximum(most: Any) -> None:
    assert problem(bee(fields={"near": {"list": {"n": "number"}, "max": most}})) == (
        "entity_types.bee.fields.near.max: must be a whole number of 1–32"
    )


@pytest.mark.parametrize("declared", ["Number", "", 5, None, {}, {"max": 3}, True])
def test_what_is_no_field_type(declared: Any) -> None:
    assert problem(bee(fields={"hp": declared})).startswith(
        "entity_types.bee.fields.hp: must be a field type"
    )


@pytest.mark.parametrize("table", ["fields", "events", "actions"])
def test_names_are_judged_in_every_table(table: str) -> None:
    value = "number" if table == "fields" else "text"
    assert problem(bee(**{table: {"a\x7fb": value}})).startswith(
        f"entity_types.bee.{table}.a\\u007fb: a name"
    )
    assert problem(bee(**{table: {"n" * 129: value}})).startswith(f"entity_types.bee.{table}.nnn")


def test_an_entry_of_scopes_cannot_be_null_in_a_manifest() -> None:
    assert problem(bee() | {"scopes": {"a": None}}) == "scopes.a: must be an object"
    assert problem(bee() | {"profiles": {"a": None}}) == "profiles.a: must be an object"


# Decision cache


def cached(key: Any = (), scopes: Any = None, **keys: Any) -> dict[str, Any]:
    """A manifest whose type has a cache rule and fields of every sort."""
    fields = {
        "hp": "number",
        "on": "boolean",
        "do": ["a", "b"],
        "phase": [1, 2],
        "a.b": "number",
        "at": "vector3",
    }
    rule = {"key": list(key), **keys}
    return bee(fields=fields, cache=rule) | {
        "world_fields": {"hp": "number", "x.y": "number"},
        "scopes": scopes,
    }


def test_a_cache_rule_with_everything() -> None:
    key = ["hp", "on", "do", "world.hp", "scope.fog", "parent.action"]
    raw = cached(key, {"wood": {"text": "", "fields": {"fog": "number"}}}, buckets={"scope.fog": [1, 2.5]})
    rule = parse_manifest(raw).manifest.entity_types["bee"].cache
    assert rule is not None
    assert (rule.key, rule.buckets, rule.ttl_ms) == (tuple(key), {"scope.fog": (1.0, 2.5)}, 12_000)


def test_the_cache_lives_as_long_as_a_decision_unless_told() -> None:
    rule = manifest(decision_ttl_ms=5000, cache={"key": []}).entity_types["bee"].cache
    assert rule is not None
    assert rule.ttl_ms == 5000


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("mana", "is not declared"),
        ("world.mana", "is not declared"),
        ("at", "vector3"),
        ("a.b", "without a dot"),
        ("world.x.y", "without a dot"),
        ("world.", "without a dot"),
        ("scope.a.b", "without a dot"),
        ("parent.type", "parent.action"),
        ("parent.action.x", "parent.action"),
        (5, "strings only"),
        (["hp"], "strings only"),
    ],
)
def test_a_cache_key_entry_that_is_refused(entry: Any, reason: str) -> None:
    text = problem(cached([entry]))
    assert text.startswith("entity_types.bee.cache.key: ")
    assert reason in text


def test_a_cache_key_entry_occurs_once() -> None:
    assert problem(cached(["hp", "hp"])) == "entity_types.bee.cache.key: hp occurs twice"


@pytest.mark.parametrize("rule", [{}, {"key": None}, {"key": "hp"}, [], 5])
def test_a_cache_rule_needs_a_key(rule: Any) -> None:
    assert problem(bee(cache=rule)).startswith("entity_types.bee.cache")


@pytest.mark.parametrize(
    "thresholds", [[1, 1], [2, 1], [1, "2"], [True], [float("inf")], 5, [None], [1, 1.0]]
)
def test_thresholds_ascend(thresholds: Any) -> None:
    assert problem(cached(["hp"], buckets={"hp": thresholds})).startswith(
        "entity_types.bee.cache.buckets.hp: "
    )


@pytest.mark.parametrize("entry", ["on", "do", "parent.action"])
def test_only_numbers_have_buckets(entry: str) -> None:
    assert problem(cached([entry], buckets={entry: [1]})) == (
        f"entity_types.bee.cache.buckets.{entry}: only a number can have buckets"
    )


def test_an_enum_of_numbers_may_have_buckets() -> None:
    assert parse_manifest(cached(["phase"], buckets={"phase": [2]})).warnings == ()


def test_buckets_belong_to_the_key() -> None:
    assert problem(cached(["on"], buckets={"hp": [1]})) == "entity_types.bee.cache.buckets.hp: is not in key"


def test_a_scope_field_in_a_cache_key_has_a_type_that_fits() -> None:
    scopes = {"wood": {"text": "", "fields": {"fog": "vector2"}}}
    assert problem(cached(["scope.fog"], scopes)).startswith(
        "entity_types.bee.cache.key: scope.fog is a vector2"
    )
    scopes = {"wood": {"text": "", "fields": {"fog": "boolean"}}}
    assert problem(cached(["scope.fog"], scopes, buckets={"scope.fog": [1]})).startswith(
        "entity_types.bee.cache.buckets.scope.fog: "
    )


# Warnings


def test_unknown_keys_are_warned_of_at_every_level() -> None:
    raw = bee(
        fields={"near": {"list": {"n": "number"}, "max": 2, "min": 1}}, cache={"key": [], "keys": 1}, colour=1
    )
    raw |= {
        "budgets": {},
        "scopes": {"wood": {"text": "", "note": 1}},
        "profiles": {"old": {"text": "", "age": 9}},
    }
    assert set(parse_manifest(raw).warnings) == {
        "budgets: unknown key, ignored",
        "entity_types.bee.colour: unknown key, ignored",
        "entity_types.bee.fields.near.min: unknown key, ignored",
        "entity_types.bee.cache.keys: unknown key, ignored",
        "scopes.wood.note: unknown key, ignored",
        "profiles.old.age: unknown key, ignored",
        "entity_types.bee.cache.key: is empty, so all situations of this type share one decision",
    }


def test_a_scope_field_that_no_scope_declares_is_a_warning() -> None:
    assert parse_manifest(cached(["scope.fog"])).warnings == (
        "entity_types.bee.cache.key: no scope declares scope.fog, it counts as absent",
    )


def test_a_profile_of_an_undeclared_type_is_a_warning() -> None:
    assert parse_manifest(bee() | {"profiles": {"old": {"type": "bat", "text": ""}}}).warnings == (
        "profiles.old.type: no such entity type, so no entity can use it",
    )


def test_many_warnings_are_counted_and_hold_no_control_characters() -> None:
    warnings = parse_manifest(bee() | {f"k\n{i}": 1 for i in range(MAX_WARNINGS + 5)}).warnings
    assert warnings[0] == "k\\u000a0: unknown key, ignored"
    assert warnings[-1] == "5 more warnings"
    assert len(warnings) == MAX_WARNINGS + 1


def test_an_error_stays_short_whatever_the_names() -> None:
    raw = {
        "entity_types": {"t" * 128: {"actions": {"a": ""}, "fields": {"f" * 128: {"list": {"s" * 128: 1}}}}}
    }
    text = problem(raw)
    assert text.endswith(
        "must be a field type: number, boolean, string, vector2, vector3, entity_ref, "
        "an array of values or a list object"
    )
    assert len(text) <= MAX_ERROR_CHARS


def test_ten_thousand_levels_are_refused() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    assert problem(bee() | {"extra": deep}) == "is nested too deeply"


def test_a_number_no_double_can_hold_is_refused() -> None:
    assert "range of a double" in problem(bee() | {"extra": 10**400})


def test_a_cache_key_of_endless_length_is_refused() -> None:
    manifest = {
        "entity_types": {
            "bee": {
                "actions": {"idle": "Stay"},
                "fields": {"hp": "number"},
                "cache": {"key": [f"scope.f{n}" for n in range(257)]},
            }
        }
    }
    with pytest.raises(InputError, match=r"entity_types\.bee\.cache\.key: must have at most 256 entries"):
        parse_manifest(manifest)


def test_endless_thresholds_are_refused() -> None:
    manifest = {
        "entity_types": {
            "bee": {
                "actions": {"idle": "Stay"},
                "fields": {"hp": "number"},
                "cache": {"key": ["hp"], "buckets": {"hp": list(range(257))}},
            }
        }
    }
    with pytest.raises(InputError, match=r"buckets\.hp: must have at most 256 thresholds"):
        parse_manifest(manifest)


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_an_endless_number_is_named_by_its_path(number: str) -> None:
    body = (
        '{"a2g":"0.1","client_id":"c","manifest":{"entity_types":{"bee":{"actions":{"idle":"Stay"},'
        f'"perception_radius":{number}}}}}}}}}'
    )
    with pytest.raises(
        InputError, match=r"^manifest\.entity_types\.bee\.perception_radius: must be a number"
    ):
        decode_session(body.encode())
