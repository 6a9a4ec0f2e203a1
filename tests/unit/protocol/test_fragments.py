"""Number texts and renderers: what a model reads of a game's values."""

import msgspec
import pytest

from shared.protocol.fields import FieldType, attribute, object_struct
from shared.protocol.fragments import (
    compile_renderer,
    exact_number_text,
    json_text,
    number_text,
    number_text_for,
    scalars_text,
    string_text,
)
from shared.protocol.manifest import CacheRule


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.333, "0.333"),
        (1.0, "1"),
        (-0.0, "0"),
        (0, "0"),
        (-1.5, "-1.5"),
        (96.41237, "96.41"),
        (9999, "9999"),
        (1 / 3, "0.3333"),
        (0.00012345, "0.0001234"),
        (12345, "12340"),
        (12355.0, "12360"),
        (-98765.4, "-98770"),
        (123_456_789, "123500000"),
        (1e9, "1e9"),
        (1.23456e12, "1.235e12"),
        (1.23456e-7, "1.235e-7"),
        (10**300, "1e300"),
        (1.7976931348623157e308, "1.797e308"),
        (-1.7976931348623157e308, "-1.797e308"),
    ],
)
def test_numbers_have_four_significant_digits(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (-0.0, "0"), (0.1, "0.1"), (123456.789, "123456.789"), (2, "2")]
)
def test_exact_numbers_lose_nothing(value: float, text: str) -> None:
    assert exact_number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.333, "0.33"),
        (0.3399, "0.33"),  # 0.34 would be the next band
        (0.3399999999999999, "0.33"),
        (0.34, "0.34"),
        (0.3349, "0.33"),
        (0.666, "0.66"),
        (0.67, "0.67"),
        (0.5, "0.5"),
        (1.0, "1"),
        (123.456, "123.46"),
        (-0.001, "0"),
    ],
)
def test_numbers_with_buckets_keep_what_the_buckets_distinguish(value: float, text: str) -> None:
    assert number_text_for([0.34, 0.67])(value) == text


@pytest.mark.parametrize(
    ("thresholds", "value", "text"),
    [
        ([10, 20], 9.7, "9"),
        ([10, 20], 19.99, "19"),
        ([10, 20], 10.4, "10"),
        ([0], -0.4, "-1"),
        ([0], -0.0, "0"),
        ([0.25, 0.5], 0.2499, "0.24"),
        ([1e-7], 9.9e-8, "0"),
        ([1e-12], 0.1234567, "0.1234567"),
        ([1e-300], 0.3, "0.3"),
        ([0.5], 1e300, "1e+300"),
        ([], 0.7, "1"),
    ],
)
def test_rounding_never_crosses_a_threshold(thresholds: list[float], value: float, text: str) -> None:
    assert number_text_for(thresholds)(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("a\x00b\nc\x7fd\x85e", '"abcde"'),
        ("grüße 蜂 🐝", '"grüße 蜂 🐝"'),
        ("", '""'),
        ("no\u00a0break\u2028", '"no\u00a0break\u2028"'),
    ],
)
def test_strings_are_escaped_and_cleaned(value: str, text: str) -> None:
    assert string_text(value) == text


def test_scalars() -> None:
    texts = [json_text(value) for value in (True, False, None, 1.0, "x")]
    assert texts == ["true", "false", "null", "1", '"x"']
    assert scalars_text({"hp": 0.33333, 'a"b': True}) == '{"hp":0.3333,"a\\"b":true}'
    assert scalars_text({}) == "{}"


FIELDS = {
    "hp": FieldType("number"),
    "100%": FieldType("boolean"),
    "mood": FieldType("enum", values=("calm", 'an"gry', "a\x01b")),
    "level": FieldType("enum", values=(1, 2.5, 123456)),
    "note": FieldType("string"),
    "at": FieldType("vector2"),
    "target": FieldType("entity_ref"),
    "allies": FieldType("list", sub={"id": FieldType("entity_ref"), "hp": FieldType("number")}, max=8),
}


def decoded(fields: dict[str, FieldType], text: str) -> msgspec.Struct:
    return msgspec.json.decode(text, type=object_struct("Observation", fields))


def test_every_field_type_in_the_manifests_order() -> None:
    sent = (
        '{"allies":[{"hp":0.66666,"id":"b2"},{"id":null,"hp":1}],"target":null,"at":[1.50001,-0.0],'
        '"note":"x y","level":123456.0,"mood":"an\\"gry","100%":true,"hp":0.33333}'
    )
    assert compile_renderer(FIELDS)(decoded(FIELDS, sent)) == (
        '{"hp":0.3333,"100%":true,"mood":"an\\"gry","level":123456,"note":"x y","at":[1.5,0],"target":null,'
        '"allies":[{"id":"b2","hp":0.6667},{"id":null,"hp":1}]}'
    )


def test_an_enum_is_cleaned_of_control_characters() -> None:
    fields = {"mood": FIELDS["mood"]}
    struct = object_struct("Observation", fields)(**{attribute(0): "a\x01b"})
    assert compile_renderer(fields)(struct) == '{"mood":"ab"}'


def test_no_fields() -> None:
    assert compile_renderer({})(decoded({}, "{}")) == "{}"


def test_buckets_are_found_by_prefix() -> None:
    fields = {"hp": FieldType("number")}
    rule = CacheRule(key=("hp", "world.hp"), buckets={"hp": (0.5,), "world.hp": (0.25, 0.5)}, ttl_ms=1000)
    observation = decoded(fields, '{"hp":0.4444}')
    assert compile_renderer(fields, rule)(observation) == '{"hp":0.4}'
    assert compile_renderer(fields, rule, "world.")(observation) == '{"hp":0.44}'
    assert compile_renderer(fields, rule, "scope.")(observation) == '{"hp":0.4444}'
    assert compile_renderer(fields)(observation) == '{"hp":0.4444}'
