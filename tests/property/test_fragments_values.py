"""Whatever a game sends, its fragment is valid JSON that says the same, without control characters."""

import json
import math
import unicodedata
from bisect import bisect_right
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared.protocol.fields import FieldType, object_struct
from shared.protocol.fragments import (
    compile_renderer,
    exact_number_text,
    json_text,
    number_text,
    number_text_for,
    string_text,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = finite | st.integers(-(2**60), 2**60) | st.floats(-2, 2) | st.integers(-9999, 9999)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(numbers)
def test_a_number_loses_less_than_one_in_two_thousand(value: float) -> None:
    text = number_text(value)
    assert math.isclose(json.loads(text), value, rel_tol=0.000501, abs_tol=1e-320)
    digits = "".join(map(str, Decimal(text).as_tuple().digits)).strip("0")
    assert len(digits) <= 4
    assert len(text) <= 12


@given(st.integers(-9999, 9999))
def test_small_whole_numbers_are_exact(value: int) -> None:
    assert number_text(value) == number_text(float(value)) == str(value)


@given(finite)
def test_exact_numbers_read_back(value: float) -> None:
    assert json.loads(exact_number_text(value)) == value


steps = st.integers(0, 12).flatmap(
    lambda decimals: st.integers(-(10**6), 10**6).map(lambda n: float(Decimal(n).scaleb(-decimals)))
)
thresholds = st.lists(steps | finite, min_size=1, max_size=6, unique=True).map(sorted)


@settings(max_examples=400)
@given(thresholds, st.data())
def test_a_number_with_buckets_stays_in_its_band(bounds: list[float], data: st.DataObject) -> None:
    near = st.sampled_from(bounds).flatmap(
        lambda bound: (
            st.sampled_from([bound, math.nextafter(bound, -math.inf), math.nextafter(bound, math.inf)])
            | st.floats(-0.02, 0.02).map(lambda step: bound + step)
        )
    )
    value = data.draw(near | finite | st.integers(-100, 100))
    assume(math.isfinite(value))
    text = number_text_for(bounds)(value)
    assert bisect_right(bounds, json.loads(text)) == bisect_right(bounds, value)


@given(st.lists(st.sampled_from([0.1, 0.25, 0.34, 0.5, 0.67]), min_size=1, unique=True), st.floats(-5, 5))
def test_a_number_with_buckets_has_their_decimals(bounds: list[float], value: float) -> None:
    text = number_text_for(sorted(bounds))(value)
    _, _, decimals = text.partition(".")
    assert len(decimals) <= max(len(str(bound)) - 2 for bound in bounds)
    assert abs(json.loads(text) - value) <= 0.1


@given(texts)
def test_a_string_is_itself_without_control_characters(value: str) -> None:
    cleaned = "".join([c for c in value if unicodedata.category(c) != "Cc"])
    assert json.loads(string_text(value)) == json.loads(json_text(value)) == cleaned


leaves = st.sampled_from(["number", "boolean", "string", "vector2", "vector3", "entity_ref"]).map(FieldType)
enums = st.lists(
    texts | st.integers(-5, 5) | st.sampled_from([0.5, 123456.5]), min_size=1, max_size=4, unique=True
)
scalars = leaves | enums.map(lambda values: FieldType("enum", values=tuple(values)))
names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), min_size=1, max_size=5
)
lists = st.dictionaries(names, scalars, min_size=1, max_size=3).map(
    lambda sub: FieldType("list", sub=sub, max=4)
)
declarations = st.dictionaries(names, scalars | lists, max_size=5)


def sent(field: FieldType) -> st.SearchStrategy[Any]:
    plain = {
        "number": st.floats(-1000, 1000),
        "boolean": st.booleans(),
        "string": texts,
        "vector2": st.lists(st.floats(-1000, 1000), min_size=2, max_size=2),
        "vector3": st.lists(st.floats(-1000, 1000), min_size=3, max_size=3),
        "entity_ref": st.none() | texts.filter(bool),
    }
    if field.kind == "enum":
        return st.sampled_from(field.values)
    if field.kind == "list":
        return st.lists(
            st.fixed_dictionaries({name: sent(kind) for name, kind in field.sub.items()}), max_size=4
        )
    return plain[field.kind]


def as_shown(value: Any, exact: bool = False) -> Any:
    """The value as the model should read it: cleaned, and numbers short unless they are an enum's."""
    if isinstance(value, str):
        return "".join([c for c in value if unicodedata.category(c) != "Cc"])
    if isinstance(value, list):
        return [as_shown(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return value if exact else float(f"{value:.4g}")


def shown_object(fields: dict[str, FieldType], values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [shown_object(dict(kind.sub), item) for item in values[name]]
        if kind.kind == "list"
        else as_shown(values[name], exact=kind.kind == "enum")
        for name, kind in fields.items()
    }


@settings(max_examples=100, deadline=None)
@given(declarations, st.data())
def test_a_rendered_object_says_what_was_sent(fields: dict[str, FieldType], data: st.DataObject) -> None:
    values = data.draw(st.fixed_dictionaries({name: sent(kind) for name, kind in fields.items()}))
    struct = msgspec.json.decode(json.dumps(values), type=object_struct("Observation", fields))
    text = compile_renderer(fields)(struct)
    assert json.loads(text) == shown_object(fields, values)
    assert list(json.loads(text)) == list(fields)
    assert not any(unicodedata.category(c) == "Cc" for c in text)
