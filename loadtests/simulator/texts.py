"""How many characters a model would see of a JSON value. Pure."""

import msgspec

_TEXT = msgspec.json.Decoder(str)


def seen_chars(raw: bytes) -> int:
    """Characters of a JSON value as a model reads it: a string's own, otherwise those of the JSON text.

    `raw` is valid UTF-8. Raises msgspec.DecodeError for a string that is not valid JSON.
    """
    if raw.startswith(b'"'):
        return len(_TEXT.decode(raw))
    return len(raw) if raw.isascii() else len(raw.decode())
