"""`POST /v1/session` as a game sends it (A2G Session, "Request"). Pure."""

from dataclasses import dataclass

from shared.protocol.checks import fault, require_name, require_object, require_string
from shared.protocol.decoding import decode_any
from shared.protocol.limits import MAX_STRING_CHARS, PROTOCOL_VERSION
from shared.protocol.names import clean_text


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A session to open; `manifest` is decoded JSON that `parse_manifest` has yet to judge."""

    a2g: str
    client_id: str
    game: str
    engine: str
    manifest: object


def decode_session(body: bytes) -> SessionRequest:
    """Read the request around the manifest. Raises `InputError`, first of all for another protocol version
    (A2G Overview, "Versioning")."""
    written = require_object(decode_any(body), "")
    if written.get("a2g") != PROTOCOL_VERSION:
        raise fault("a2g", f'this service speaks version "{PROTOCOL_VERSION}" only')
    if written.get("manifest") is None:
        raise fault("manifest", "is required")
    return SessionRequest(
        a2g=PROTOCOL_VERSION,
        client_id=require_name(written.get("client_id"), "client_id"),
        game=_display_name(written.get("game"), "game"),
        engine=_display_name(written.get("engine"), "engine"),
        manifest=written["manifest"],
    )


def _display_name(value: object, path: str) -> str:
    return "" if value is None else clean_text(require_string(value, path, MAX_STRING_CHARS))
