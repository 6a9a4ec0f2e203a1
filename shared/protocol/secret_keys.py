"""The keys under which this deployment signs its tokens and ids. Pure: the text comes from the settings.

The first key signs, all verify, so that a key is changed by putting a new one in front and dropping the old
one when nothing signed with it can still be valid.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.errors import ConfigError

MIN_KEY_BYTES = 32  # 256 bits: out of reach of any search
_SETTING = "MUSTER_SECRET_KEYS"
_MAX_KEY_ID = 255  # a key's id travels as one byte
_MAX_BLAKE2B_KEY_BYTES = 64


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """Keys by id. Nothing of a key shows in `repr`."""

    signing_id: int
    _keys: Mapping[int, bytes] = field(repr=False)

    @staticmethod
    def parse(text: str) -> "SecretKeys":
        """Read `kid:key,…`: kid 0–255, key base64url of at least 32 bytes.

        Raises ConfigError that names the entry by its place and never shows it.
        """
        keys: dict[int, bytes] = {}
        for place, entry in enumerate(text.split(","), start=1):
            key_id, key = _parse_entry(entry.strip(), f"{_SETTING}: entry {place}")
            if key_id in keys:
                raise ConfigError(f"{_SETTING}: entry {place}: this key id is already taken")
            keys[key_id] = key
        return SecretKeys(next(iter(keys)), keys)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all keys, the signing one first."""
        return tuple(self._keys)

    def hasher(self, key_id: int, purpose: bytes, digest_bytes: int) -> "hashlib.blake2b":
        """A keyed BLAKE2b to copy and feed, whose tags of one `purpose` (≤ 16 bytes) fit no other."""
        key = self._keys[key_id]
        if len(key) > _MAX_BLAKE2B_KEY_BYTES:
            key = hashlib.blake2b(key).digest()
        return hashlib.blake2b(key=key, person=purpose, digest_size=digest_bytes)


def _parse_entry(entry: str, where: str) -> tuple[int, bytes]:
    key_id, colon, encoded = entry.partition(":")
    if not colon:
        raise ConfigError(f"{where}: must be kid:key")
    if not (key_id.isascii() and key_id.isdigit() and len(key_id) <= 3 and int(key_id) <= _MAX_KEY_ID):
        raise ConfigError(f"{where}: the key id must be a whole number from 0 to {_MAX_KEY_ID}")
    key = _decode_key(encoded)
    if key is None:
        raise ConfigError(f"{where}: the key is not base64url")
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(f"{where}: the key is shorter than {MIN_KEY_BYTES} bytes")
    return int(key_id), key


def _decode_key(encoded: str) -> bytes | None:
    """Bytes of base64url text with or without padding; None for anything else."""
    if "+" in encoded or "/" in encoded or not encoded.isascii():
        return None
    stripped = encoded.rstrip("=")
    try:
        return base64.b64decode(stripped + "=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
