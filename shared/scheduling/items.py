"""What travels through the deadline queue: one request's entities of one lane, and the reply to them. Pure.

Everything that the gateway had to render (observations, state, cache keys) is in the item as ready text, so
that a worker splices model input instead of encoding it again.
"""

import msgspec

Position = tuple[float, float] | tuple[float, float, float]


class ParentDecision(msgspec.Struct, array_like=True, frozen=True):
    """The latest decision of an entity's parent, as the gateway read it (A2G Decide, "Groups")."""

    id: str
    type: str
    action: str
    at_ms: int


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
    parent: ParentDecision | None  # None too when the parent has not decided yet
    position: list[float] | None
    digest: bytes | None  # the cache key, None when its type has no cache


class AskedRow(msgspec.Struct, array_like=True, frozen=True):
    """A decide request's word on an entity with a parent: it counts as a member until the next snapshot."""

    id: str
    type: str
    parent: str
    position: list[float] | None
    observation: str


class QueueItem(msgspec.Struct, array_like=True, frozen=True):
    """One request's entities of one lane."""

    id: str
    gateway: str  # whose reply stream the answer goes to
    game: str
    session: str
    client_id: str
    security_profile: str
    epoch: int
    manifest_hash: str
    contexts_hash: str
    scope: str | None
    route: str
    priority: int  # the class, 0 is critical
    received_ms: int
    deadline_ms: int
    world_state: str  # JSON object text, "" when the manifest declares no world fields
    scope_state: str  # likewise for the scope chain's fields
    asks: list[Ask]
    traceparent: str | None = None


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


_ITEM_ENCODER = msgspec.msgpack.Encoder()
_ITEM_DECODER = msgspec.msgpack.Decoder(QueueItem)
_REPLY_DECODER = msgspec.msgpack.Decoder(ItemReply)
_ROWS_DECODER = msgspec.msgpack.Decoder(list[AskedRow])


def encode(value: QueueItem | ItemReply | list[AskedRow]) -> bytes:
    """The bytes that go to Redis."""
    return _ITEM_ENCODER.encode(value)


def decode_item(data: bytes) -> QueueItem:
    """Read a queue item; raises msgspec.MsgspecError for bytes that are not one."""
    return _ITEM_DECODER.decode(data)


def decode_reply(data: bytes) -> ItemReply:
    """Read a reply; raises msgspec.MsgspecError for bytes that are not one."""
    return _REPLY_DECODER.decode(data)


def decode_rows(data: bytes) -> list[AskedRow]:
    """Read the rows of one decide request; raises msgspec.MsgspecError for bytes that are not such."""
    return _ROWS_DECODER.decode(data)
