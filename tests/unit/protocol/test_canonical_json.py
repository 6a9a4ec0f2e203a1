"""RFC 8785 canonical JSON and names (A2G Manifest, "Manifest hash")."""

import hashlib
from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.canonical import canonical_json, manifest_hash
from shared.protocol.names import (
    clean_prose,
    clean_text,
    declared_name,
    is_awkward,
    is_name,
    shown,
    wire_name,
)


def test_numbers_are_written_as_doubles() -> None:
    value = [1, 1.0, -0.0, 1e21, 1e-7, 2**53 + 1, True, None]
    assert canonical_json(value) == b"[1,1,0,1e+21,1e-7,9007199254740992,true,null]"


def test_keys_are_sorted_by_utf16_units() -> None:
    assert canonical_json({"\ufb33": 1, "😀": 2, "b": 3, "a": 4}) == (
        '{"a":4,"b":3,"😀":2,"\ufb33":1}'.encode()
    )


def test_control_characters_are_escaped_and_nothing_else() -> None:
    assert canonical_json('\x00\n"\\/é\x7f') == b'"\\u0000\\n\\"\\\\/\xc3\xa9\x7f"'


@pytest.mark.parametrize(
    "value", ["\ud800", {"\udc00": 1}, float("nan"), float("inf"), 10**400, {1: 2}, object()]
)
def test_what_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(InputError):
        canonical_json(value)


def test_deep_nesting_is_refused_not_crashed() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InputError, match="nested"):
        canonical_json(deep)


def test_the_hash_leaves_out_top_level_scopes_and_profiles_only() -> None:
    canonical = b'{"entity_types":{"scopes":{"profiles":1}}}'
    raw = {"profiles": {}, "entity_types": {"scopes": {"profiles": 1}}, "scopes": {"a": 1}}
    assert manifest_hash(raw) == f"sha256:{hashlib.sha256(canonical).hexdigest()}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("a", True), ("n" * 128, True), ("n" * 129, False), ("😀" * 128, True), ("a\n", False),
     ("\x7f", False), ("\x9f", False), ("\xa0", True), ("\u200b", True), (" ", True)],
)  # fmt: skip
def test_what_may_be_a_name(text: str, expected: bool) -> None:
    assert is_name(text) is expected


def test_control_characters_are_removed() -> None:
    assert clean_text("a\x00b\nc\td\x7fe\x85f\xa0") == "abcdef\xa0"
    assert clean_prose("a\x00b\nc\td\x7fe\x85f\r") == "ab\nc\tdef"


def test_an_echoed_name_is_escaped_and_cut() -> None:
    assert shown("a\nb\x9f") == "a\\u000ab\\u009f"
    assert shown("n" * 128) == "n" * 128
    assert shown("n" * 129) == "n" * 128 + "…"
    assert len(shown("\x00" * 500)) == 129


def test_an_awkward_name_travels_under_another_spelling() -> None:
    assert is_awkward('a"b')
    assert is_awkward("a\\b")
    assert not is_awkward("a.b c'é")
    assert declared_name(wire_name('a"\\b')) == 'a"\\b'
    assert wire_name("\x80") not in (wire_name('"'), wire_name("\\"))
