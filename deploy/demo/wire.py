"""The shapes of A2G messages that the demo's client reads and writes. Pure."""

from typing import Any, Literal

import msgspec

A2G_VERSION = "0.1"


class DecisionReply(msgspec.Struct, frozen=True):
    """One entity's answer. `code` is set exactly for `FALLBACK`, `action` and `decision_id` for `AI`."""

    id: str
    source: Literal["AI", "FALLBACK"]
    ttl_ms: int
    action: str = ""
    decision_id: str = ""
    confidence: float | None = None
    cached: bool = False
    code: Literal["", "unavailable", "busy", "refused", "invalid_choice", "budget"] = ""

    def __post_init__(self) -> None:
        if self.source == "AI" and not (self.action and self.decision_id):
            raise ValueError("an AI decision needs action and decision_id")
        if self.source == "FALLBACK" and not self.code:
            raise ValueError("a FALLBACK needs a code")


class DecideReply(msgspec.Struct, frozen=True):
    """Unknown keys are ignored: a later service may say more."""

    epoch: int
    decisions: list[DecisionReply]


class SessionReply(msgspec.Struct, frozen=True):
    """`warnings` is Muster's own addition, `session_token` is left out in the local profile."""

    manifest_hash: str
    session_token: str | None = None
    warnings: list[str] = []


class Report(msgspec.Struct, frozen=True):
    """How a decision ended; sent with the `client_id`."""

    entity_id: str
    decision_id: str
    action: str
    status: Literal["executed", "blocked", "expired"]
    outcome: dict[str, float]


_DECIDE = msgspec.json.Decoder(DecideReply)
_SESSION = msgspec.json.Decoder(SessionReply)


def decode_decide(body: bytes) -> DecideReply:
    """Raises msgspec.DecodeError (ValidationError is one) on anything that is not a decide reply."""
    return _DECIDE.decode(body)


def decode_session(body: bytes) -> SessionReply:
    """Raises msgspec.DecodeError on anything that is not a session reply."""
    return _SESSION.decode(body)


def encode(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message)
