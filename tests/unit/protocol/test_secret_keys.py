"""Secret keys: what the operator writes, and that it never shows."""

import base64

import pytest

from shared.errors import ConfigError
from shared.protocol.secret_keys import SecretKeys

FIRST = base64.urlsafe_b64encode(bytes(range(32))).decode()
SECOND = base64.urlsafe_b64encode(b"\xfb\xff" * 20).decode()


def test_the_first_signs() -> None:
    keys = SecretKeys.parse(f"7:{FIRST},0:{SECOND}")
    assert keys.signing_id == 7
    assert keys.ids == (7, 0)


@pytest.mark.parametrize("text", [f"1:{FIRST.rstrip('=')}", f" 1:{FIRST} , 2:{SECOND} ", f"255:{FIRST}"])
def test_accepted_spellings(text: str) -> None:
    assert SecretKeys.parse(text).ids


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "entry 1: must be kid:key"),
        (FIRST, "entry 1: must be kid:key"),
        (f"1:{FIRST},", "entry 2: must be kid:key"),
        (f"256:{FIRST}", "entry 1: the key id must be a whole number from 0 to 255"),
        (f"-1:{FIRST}", "entry 1: the key id must be a whole number from 0 to 255"),
        (f"a:{FIRST}", "entry 1: the key id must be a whole number from 0 to 255"),
        (f"²:{FIRST}", "entry 1: the key id must be a whole number from 0 to 255"),
        (f":{FIRST}", "entry 1: the key id must be a whole number from 0 to 255"),
        (f"1:{FIRST},1:{SECOND}", "entry 2: this key id is already taken"),
        (f"1:{FIRST[:20]}", "entry 1: the key is shorter than 32 bytes"),
        ("1:", "entry 1: the key is shorter than 32 bytes"),
        (f"1:!{FIRST}", "entry 1: the key is not base64url"),
        (f"1:{SECOND.replace('-', '+').replace('_', '/')}", "entry 1: the key is not base64url"),
        (f"1:{FIRST[:10]} {FIRST[10:]}", "entry 1: the key is not base64url"),
        (f"1:{FIRST[:10]}    {FIRST[10:]}", "entry 1: the key is not base64url"),
        (f"1:{FIRST[:10]}={FIRST[10:]}", "entry 1: the key is not base64url"),
        (f"1:é{FIRST}", "entry 1: the key is not base64url"),
        (f"1:{'A' * 45}", "entry 1: the key is not base64url"),
    ],
)
def test_a_wrong_entry_is_named_by_its_place_and_never_shown(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SecretKeys.parse(text)
    assert str(caught.value) == f"MUSTER_SECRET_KEYS: {problem}"
    assert caught.value.__context__ is None


def test_keys_do_not_show() -> None:
    shown = repr(SecretKeys.parse(f"7:{FIRST}"))
    assert shown == "SecretKeys(signing_id=7)"


def test_tags_depend_on_key_and_purpose() -> None:
    keys = SecretKeys.parse(f"1:{FIRST},2:{SECOND}")
    tags = {keys.hasher(kid, purpose, 16).digest() for kid in (1, 2) for purpose in (b"ids", b"tokens")}
    assert len(tags) == 4


def test_every_byte_of_a_long_key_counts() -> None:
    long, other = bytes(100), bytes(99) + b"\x01"
    tags = {
        SecretKeys.parse("1:" + base64.urlsafe_b64encode(key).decode()).hasher(1, b"ids", 16).digest()
        for key in (long, other, long[:64])
    }
    assert len(tags) == 3
