"""`POST /v1/session` around the manifest (A2G Session, "Request")."""

import json
from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.session import decode_session

SENT = {"a2g": "0.1", "client_id": "c", "game": "Lango", "engine": "Godot", "manifest": {"entity_types": {}}}


def refusal(**keys: Any) -> str:
    sent = {key: value for key, value in (SENT | keys).items() if value != "absent"}
    with pytest.raises(InputError) as refused:
        decode_session(json.dumps(sent).encode())
    return str(refused.value)


def test_a_session_request() -> None:
    read = decode_session(json.dumps(SENT | {"policy_version": "ignored"}).encode())
    assert (read.a2g, read.client_id, read.game, read.engine) == ("0.1", "c", "Lango", "Godot")
    assert read.manifest == {"entity_types": {}}


@pytest.mark.parametrize("version", ["0.2", "0.10", 0.1, None, "absent", "", ["0.1"]])
def test_another_version_is_refused_before_all_else(version: Any) -> None:
    assert refusal(a2g=version, client_id="", manifest=None) == 'a2g: this service speaks version "0.1" only'


def test_display_names_are_optional_cleaned_and_short() -> None:
    read = decode_session(json.dumps(SENT | {"game": "La\nngo\x85", "engine": None}).encode())
    assert (read.game, read.engine) == ("Lango", "")
    assert refusal(game="g" * 81) == "game: must have at most 80 characters"
    assert refusal(engine=5) == "engine: must be a string"


@pytest.mark.parametrize("client_id", ["", "absent", None, 5, "a\nb", "c" * 129])
def test_a_client_id_is_a_name(client_id: Any) -> None:
    assert refusal(client_id=client_id).startswith("client_id: ")


def test_a_manifest_is_required() -> None:
    assert refusal(manifest="absent") == "manifest: is required"
    assert refusal(manifest=None) == "manifest: is required"


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b'"0.1"', b"{", b'{"a2g":"0.1"}}', b"\xff", b"null"])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(InputError):
        decode_session(body)
