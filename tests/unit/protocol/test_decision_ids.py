"""Decision ids: who may report what, until when (A2G Security, "Decision integrity")."""

import base64
import itertools
import re
from collections.abc import Callable

import pytest

from shared.protocol.decision_ids import DecisionIds, IdClaim
from shared.protocol.secret_keys import SecretKeys

NOW_MS = 1_750_000_000_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def keys(*numbers: int) -> SecretKeys:
    entries = [f"{number}:{base64.urlsafe_b64encode(bytes([number]) * 32).decode()}" for number in numbers]
    return SecretKeys.parse(",".join(entries))


def ids(*numbers: int) -> DecisionIds:
    counter = itertools.count()
    return DecisionIds(keys(*numbers), lambda size: next(counter).to_bytes(size, "big"))


def test_an_id_is_opaque_url_safe_and_short() -> None:
    issued = ids(1).issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert re.fullmatch(r"d_[A-Za-z0-9_-]{36}", issued)


def test_a_genuine_id_says_when_and_for_how_long() -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert issuer.verify(issued, "s1", "bee", "flee", NOW_MS) == IdClaim(
        issued_s=1_750_000_000, ttl_s=12, expires_ms=NOW_MS + 12_000 + 600_000
    )


def test_parts_of_seconds_are_never_taken_from_the_game() -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 1_500, NOW_MS + 1)
    claim = issuer.verify(issued, "s1", "bee", "flee", NOW_MS)
    assert claim == IdClaim(issued_s=1_750_000_001, ttl_s=2, expires_ms=NOW_MS + 3_000 + 600_000)


def test_an_id_expires_ten_minutes_after_its_ttl() -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS)
    last_ms = NOW_MS + 12_000 + 600_000
    assert issuer.verify(issued, "s1", "bee", "flee", last_ms) is not None
    assert issuer.verify(issued, "s1", "bee", "flee", last_ms + 1) is None


@pytest.mark.parametrize(
    ("session", "entity", "action"),
    [
        ("s2", "bee", "flee"),
        ("s1", "wasp", "flee"),
        ("s1", "bee", "idle"),
        ("s1b", "ee", "flee"),
        ("s1", "beef", "lee"),
    ],
)
def test_an_id_serves_its_own_session_entity_and_action(session: str, entity: str, action: str) -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert issuer.verify(issued, session, entity, action, NOW_MS) is None


def test_no_character_can_be_changed() -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS)
    for place in range(2, len(issued)):
        for other in ALPHABET:
            if other != issued[place]:
                forged = issued[:place] + other + issued[place + 1 :]
                assert issuer.verify(forged, "s1", "bee", "flee", NOW_MS) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "d_01J9Z4K7",
        lambda text: text[2:],
        lambda text: text + "=",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text + "A",
        lambda text: text[:-1],
        lambda text: text[:-1] + "\x00",
        lambda text: text[:-1] + "é",
        lambda text: text[:10] + "!" + text[10:],
    ],
)
def test_no_other_text_is_an_id(change: Callable[[str], str]) -> None:
    issuer = ids(1)
    issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert issuer.verify(change(issued), "s1", "bee", "flee", NOW_MS) is None


def test_an_id_has_one_spelling() -> None:
    issuer = DecisionIds(keys(1), lambda size: b"\xfb\xff" * (size // 2))
    for second in range(200):
        issued = issuer.issue("s1", "bee", "flee", 12_000, NOW_MS + second * 1000)
        standard = issued.replace("-", "+").replace("_", "/").replace("d/", "d_", 1)
        if standard != issued:
            assert issuer.verify(standard, "s1", "bee", "flee", NOW_MS) is None
            return
    pytest.fail("no id with a character outside letters and digits")


def test_ids_of_one_decision_differ() -> None:
    issuer = ids(1)
    issued = {issuer.issue("s1", "bee", "flee", 12_000, NOW_MS) for _ in range(100)}
    assert len(issued) == 100


def test_the_first_key_signs_and_all_verify() -> None:
    issued = ids(1).issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert ids(2, 1).verify(issued, "s1", "bee", "flee", NOW_MS) is not None
    assert ids(2).verify(issued, "s1", "bee", "flee", NOW_MS) is None
    newer = ids(2, 1).issue("s1", "bee", "flee", 12_000, NOW_MS)
    assert ids(2).verify(newer, "s1", "bee", "flee", NOW_MS) is not None


def test_another_key_under_the_same_id_does_not_verify() -> None:
    issued = ids(1).issue("s1", "bee", "flee", 12_000, NOW_MS)
    other = SecretKeys.parse("1:" + base64.urlsafe_b64encode(b"z" * 32).decode())
    assert DecisionIds(other, lambda size: bytes(size)).verify(issued, "s1", "bee", "flee", NOW_MS) is None


def test_names_outside_ascii() -> None:
    issuer = ids(255)
    issued = issuer.issue("s1", "蜂🐝", "fuir à l'est", 120_000, NOW_MS)
    assert issuer.verify(issued, "s1", "蜂🐝", "fuir à l'est", NOW_MS) is not None
