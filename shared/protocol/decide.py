"""The shapes of `/v1/decide`: what a decoded request offers and how a reply is written (A2G Decide). Pure.

The Structs that decode a request are made per manifest (`compiled`) and inherit from the ones here.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal

import msgspec

from shared.protocol.limits import PROTOCOL_VERSION
from shared.protocol.manifest import EntityType

FallbackCode = Literal["unavailable", "busy", "refused", "invalid_choice", "budget"]

REASONS: Final[Mapping[FallbackCode, str]] = {
    "unavailable": "No provider answered in time",
    "busy": "The service is at capacity",
    "refused": "The model declined to choose",
    "invalid_choice": "The model gave no valid choice",
    "budget": "The input or the spending exceeds its budget",
}


class Entity(msgspec.Struct, kw_only=True, gc=False):
    """One entity that asks. `observation` holds the type's fields in their declared order as attributes
    `fields.attribute(i)`. `legal_actions` is in the manifest's order; bit i of `legal_mask` stands for the
    type's i-th action."""

    entity_type: ClassVar[EntityType]

    id: str
    observation: msgspec.Struct
    legal_actions: tuple[str, ...]
    position: tuple[float, ...] | None = None
    profile: str | None = None
    parent: str | None = None
    trigger: str | None = None
    legal_mask: int = 0


class DecideRequest(msgspec.Struct, kw_only=True, gc=False):
    """A valid decide request. `scope_state` is a Struct of the chain's fields, root first, as attributes
    `fields.attribute(i)`; None when no scope is named."""

    client_id: str
    epoch: int
    world: msgspec.Struct
    entities: list[Entity]
    scope: str | None = None
    scope_state: msgspec.Struct | None = None


class Decision(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="source", tag="AI"):
    """A valid choice; `confidence` is null where the provider gave none."""

    id: str
    action: str
    label: str
    confidence: float | None
    ttl_ms: int
    decision_id: str
    cached: bool = False


class Fallback(msgspec.Struct, kw_only=True, frozen=True, tag_field="source", tag="FALLBACK"):
    """No choice for this entity: the game runs its native AI."""

    id: str
    code: FallbackCode
    reason: str
    ttl_ms: int


class _Reply(msgspec.Struct, frozen=True):
    a2g: str
    epoch: int
    latency_ms: int
    decisions: Sequence[Decision | Fallback]


_ENCODER = msgspec.json.Encoder()


def encode_decide_reply(epoch: int, latency_ms: int, decisions: Sequence[Decision | Fallback]) -> bytes:
    """The body of a 200 reply; `epoch` is the request's, `latency_ms` counts from receipt to reply."""
    return _ENCODER.encode(_Reply(PROTOCOL_VERSION, epoch, latency_ms, decisions))
