"""What travels through the deadline queue: one request's entities of one lane, and the reply to them. Pure.

Everything that the gateway had to render (observations, state, cache keys) is in the item as ready text, so
that a worker splices model input instead of encoding it again.
"""

import msgspec

from shared.protocol.situation import AskedRow, LastDecision
from shared.scheduling.routing import Priority
from shared.scheduling.sharing import SecurityProfile


class Ask(msgspec.Struct, array_like=True, frozen=True):
    """One entity that needs a decision."""

    index: int  # its place in the request's `entities`
    id: str
    type: str
    observation: str  # JSON object text
    legal_mask: int  # bit i: the i-th action of the type, in the manifest's order, is legal
    profile: str | None
    trigger: str | None
    parent_id: str | None
    parent: LastDecision | None  # as the gateway read it; None too when the parent has not decided yet
    position: tuple[float, ...] | None
    digest: bytes | None  # the cache key, None when its type has no cache


class QueueItem(msgspec.Struct, array_like=True, frozen=True):
    """One request's entities of one lane."""

    id: str
    gateway: str  # whose reply stream the answer goes to
    game: str
    session: str
    client_id: str
    security_profile: SecurityProfile
    epoch: int
    manifest_key: str  # of the manifest's exact text: masks depend on the order of its actions
    contexts_hash: str
    scope: str | None
    route: str
    priority: Priority
    received_ms: int
    deadline_ms: int
    world_state: str  # JSON object text, "" when the manifest declares no world fields
    scope_state: str  # likewise for the scope chain's fields
    asks: list[Ask]


class CachedDecision(msgspec.Struct, array_like=True, frozen=True):
    """A decision that other situations equal under the cache key may reuse."""

    action: str
    confidence: float | None
    probabilities: dict[str, float] | None  # by action: manifests of one hash may order them otherwise
    provider: str
    model: str


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """One entity's answer on its way back to the gateway."""

    index: int
    action: str | None  # None: a fallback
    code: str | None  # the fallback code
    confidence: float | None
    decision_id: str | None
    cached: bool


class ItemReply(msgspec.Struct, array_like=True, frozen=True):
    """The answers to one queue item; all of its entities, or those that are not answered yet."""

    item: str
    answers: list[Answer]
    provider_us: int = 0  # time spent in provider calls, microseconds
    linger_us: int = 0  # time the batch waited for company on purpose, microseconds


_ENCODER = msgspec.msgpack.Encoder()
_ITEM_DECODER = msgspec.msgpack.Decoder(QueueItem)
_REPLY_DECODER = msgspec.msgpack.Decoder(ItemReply)
_ROW_DECODER = msgspec.msgpack.Decoder(AskedRow)
_CACHED_DECODER = msgspec.msgpack.Decoder(CachedDecision)
_LAST_DECODER = msgspec.msgpack.Decoder(LastDecision)


def encode(value: QueueItem | ItemReply | CachedDecision | AskedRow | LastDecision) -> bytes:
    """The bytes that go to Redis."""
    return _ENCODER.encode(value)


def decode_item(data: bytes) -> QueueItem:
    """Read a queue item; raises msgspec.MsgspecError for bytes that are not one."""
    return _ITEM_DECODER.decode(data)


def decode_reply(data: bytes) -> ItemReply:
    """Read a reply; raises msgspec.MsgspecError for bytes that are not one."""
    return _REPLY_DECODER.decode(data)


def decode_cached(data: bytes) -> CachedDecision | None:
    """Read a cached decision; None for what another version wrote: it counts as absent."""
    try:
        return _CACHED_DECODER.decode(data)
    except msgspec.MsgspecError:
        return None


def decode_row(data: bytes) -> AskedRow | None:
    """Read what a decide request said of an entity with a parent; None as in `decode_cached`."""
    try:
        return _ROW_DECODER.decode(data)
    except msgspec.MsgspecError:
        return None


def decode_last(data: bytes) -> LastDecision | None:
    """Read an entity's latest decision; None as in `decode_cached`."""
    try:
        return _LAST_DECODER.decode(data)
    except msgspec.MsgspecError:
        return None
