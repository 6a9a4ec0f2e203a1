"""What a use case answers, apart from HTTP. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a JSON body; `headers` are those beyond Content-Type and Content-Length."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def reply_json(status: int, value: object, **headers: str) -> Reply:
    """A reply with `value` as its JSON body; header names come with underscores."""
    return Reply(status, _ENCODER.encode(value), {k.replace("_", "-"): v for k, v in headers.items()})


def error_reply(status: int, message: str, **headers: str) -> Reply:
    """An error as A2G wants it: a short `error` and nothing else (A2G Security, "Errors")."""
    return reply_json(status, {"error": message}, **headers)


UNKNOWN_SESSION = error_reply(409, "unknown session: send /v1/session again")
OK = reply_json(200, {"ok": True})
UNAVAILABLE = error_reply(503, "the service's storage is unavailable: try again", Retry_After="1")
