"""Decision ids that verify themselves: opaque, unique, and worthless to anyone but their session and entity.

An id needs no storage. It is `d_` and the base64url text of

    key id (1 byte) | issued (4, seconds) | TTL (3, seconds) | random (8) | tag (11)

where the tag is a keyed BLAKE2b over the first 16 bytes and the session, entity and action, with lengths in
front. A report passes if its tag fits (A2G Security, "Decision integrity"); only the ids already
reported are stored, until their expiry. 27 bytes fill 36 characters to the last bit, so an id has one
spelling and cannot be replayed under another. Pure: randomness and time come from the caller.
"""

import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

from shared.protocol.secret_keys import SecretKeys

REPORT_GRACE_S = 600  # a report may come this long after its decision's TTL

_HEAD = Struct(">BIHB8s")  # the TTL's three bytes as two and one
_HEAD_BYTES = 16
_TAG_BYTES = 11  # 88 bits, each guess costing a request
_RANDOM_BYTES = 8
_PURPOSE = b"muster decision"
_PATTERN = re.compile(r"d_[A-Za-z0-9_-]{36}", re.ASCII)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")
_MAX_TTL_S = (1 << 24) - 1


@dataclass(frozen=True, slots=True)
class IdClaim:
    """What a genuine id says."""

    issued_s: int  # seconds since 1970, rounded up
    ttl_s: int  # the decision's TTL, rounded up
    expires_ms: int  # until then the id can be reported, and must be remembered once it was


class DecisionIds:
    """Issues ids with the first key and verifies those of all."""

    def __init__(self, keys: SecretKeys, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes(n)` returns n unpredictable bytes (`os.urandom`)."""
        self._hashers = {key_id: keys.hasher(key_id, _PURPOSE, _TAG_BYTES) for key_id in keys.ids}
        self._signing_id = keys.signing_id
        self._signing_hasher = self._hashers[keys.signing_id]
        self._random_bytes = random_bytes

    def issue(self, session: str, entity_id: str, action: str, ttl_ms: int, now_ms: int) -> str:
        """A new id for the decision that `entity_id` of `session` does `action`."""
        ttl_s = min(-(-ttl_ms // 1000), _MAX_TTL_S)
        head = _HEAD.pack(
            self._signing_id,
            -(-now_ms // 1000),
            ttl_s >> 8,
            ttl_s & 255,
            self._random_bytes(_RANDOM_BYTES),
        )
        tag = _tag(self._signing_hasher, head, session, entity_id, action)
        return "d_" + binascii.b2a_base64(head + tag, newline=False).translate(_TO_URL).decode()

    def verify(
        self, decision_id: str, session: str, entity_id: str, action: str, now_ms: int
    ) -> IdClaim | None:
        """The claim of an id issued for exactly these and not yet expired; None for any other text."""
        if _PATTERN.fullmatch(decision_id) is None:
            return None
        data = binascii.a2b_base64(decision_id[2:].encode().translate(_FROM_URL))
        head = data[:_HEAD_BYTES]
        key_id, issued_s, ttl_high, ttl_low, _ = _HEAD.unpack(head)
        hasher = self._hashers.get(key_id)
        if hasher is None or not compare_digest(
            _tag(hasher, head, session, entity_id, action), data[_HEAD_BYTES:]
        ):
            return None
        ttl_s = ttl_high << 8 | ttl_low
        expires_ms = (issued_s + ttl_s + REPORT_GRACE_S) * 1000
        return IdClaim(issued_s, ttl_s, expires_ms) if now_ms <= expires_ms else None


def _tag(hasher: blake2b, head: bytes, session: str, entity_id: str, action: str) -> bytes:
    keyed = hasher.copy()
    owned = f"{len(session)}:{len(entity_id)}:{session}{entity_id}{action}"
    keyed.update(head + owned.encode())
    return keyed.digest()
