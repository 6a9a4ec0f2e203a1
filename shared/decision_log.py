"""What travels on the decision-log stream: msgpack of a tagged union, written by gateways and workers in the
same round trip as the answer it records, read by the log writer. Pure.

One entry holds the rows of one request, so that what they share is encoded once. Delivery is at least once:
`id` and `at_ms` of a row never change between deliveries, so a repeated row is recognised.
"""

from typing import Literal

import msgspec

Source = Literal["AI", "FALLBACK"]


class DecisionHead(msgspec.Struct, array_like=True, frozen=True):
    """What all rows of one entry share."""

    at_ms: int  # when the answers were made
    game: str
    session: str
    client_id: str
    security_profile: str  # local, server or client
    epoch: int
    manifest_hash: str  # "sha256:…"
    contexts_hash: str  # of the session's scopes and profiles, whose texts travel as a StaticEntry
    scope: str | None
    route: str
    priority: str  # critical, high, normal, background
    state: str  # the dynamic state the provider saw for the whole request, JSON object text


class DecisionRow(msgspec.Struct, array_like=True, frozen=True):
    """One entity's decision or fallback."""

    id: str  # the decision id, or "f_…" for a fallback
    entity_id: str
    entity_type: str
    legal_actions: list[str]  # in the manifest's order
    source: Source
    code: str | None  # the fallback code, None for AI
    action: str | None
    confidence: float | None
    probabilities: list[float] | None  # over legal_actions, in their order
    profile: str | None
    trigger: str | None
    parent: str | None  # the parent entity's id
    input: str  # the entity's own part of the model input, JSON object text
    provider: str | None  # None: answered without one
    model: str | None
    cached: bool
    input_tokens: int  # this row's share of the provider's usage
    output_tokens: int
    cost_nanousd: int  # this row's share, every attempt counted
    latency_ms: int  # gateway receive to answer


class DecisionEntry(msgspec.Struct, array_like=True, frozen=True, tag="d"):
    """The rows of one request (or of the part of it that was answered together)."""

    head: DecisionHead
    rows: list[DecisionRow]


class ReportEntry(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    """One report; joins a decision by `decision_id`."""

    at_ms: int
    game: str
    session: str
    client_id: str
    security_profile: str
    decision_id: str | None  # None: a LOCAL decision of the game's own policy
    entity_id: str
    action: str
    status: str  # executed, blocked or expired
    outcome: dict[str, float | int | bool | str | None]
    remembered: bool  # False: the entity was gone, or the decision was not the service's
    source: str  # AI or LOCAL
    local_prediction: dict[str, float | int | bool | str | None] | None
    policy_version: str | None


class StaticEntry(msgspec.Struct, array_like=True, frozen=True, tag="s"):
    """A manifest, or a session's scopes and profiles, that rows name by hash."""

    at_ms: int
    game: str
    kind: Literal["manifest", "contexts"]
    hash: str
    source: str  # compact JSON


LogEntry = DecisionEntry | ReportEntry | StaticEntry

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[LogEntry] = msgspec.msgpack.Decoder(
    DecisionEntry | ReportEntry | StaticEntry
)


def encode_entry(entry: LogEntry) -> bytes:
    """The bytes that go on the stream, field `e`."""
    return _ENCODER.encode(entry)


def decode_entry(data: bytes) -> LogEntry:
    """Read one entry; raises msgspec.MsgspecError for bytes that are not one."""
    return _DECODER.decode(data)
