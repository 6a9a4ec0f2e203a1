"""What a name may be, and the removal of control characters (Unicode category Cc). Pure.

Length is counted in code points, before control characters are removed.
"""

import re

from shared.protocol.limits import MAX_NAME_CHARS

# Category Cc is exactly U+0000–U+001F and U+007F–U+009F; Unicode's stability policy keeps it so.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_CONTROL_BUT_LAYOUT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def has_control(text: str) -> bool:
    """Whether `text` holds a control character."""
    return _CONTROL.search(text) is not None


def is_name(text: str) -> bool:
    """Whether `text` may name something: 1–128 code points, none of them a control character."""
    return 0 < len(text) <= MAX_NAME_CHARS and not has_control(text)


def clean_text(text: str) -> str:
    """`text` without control characters: what a "string" field holds (A2G Manifest, "Field types")."""
    return _CONTROL.sub("", text)


def clean_prose(text: str) -> str:
    """`text` without control characters other than newline and tab, which lay out a long description."""
    return _CONTROL_BUT_LAYOUT.sub("", text)


def shown(name: str) -> str:
    """`name` as an error or warning may echo it: control characters escaped, cut to a name's length."""
    escaped = _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", name[: MAX_NAME_CHARS + 1])
    return escaped if len(escaped) <= MAX_NAME_CHARS else f"{escaped[:MAX_NAME_CHARS]}…"


# msgspec refuses a quote or backslash in the name of a field. Names hold no control characters, so U+0080 and
# U+0081 are free to stand for them; where a game sends those, U+0082 keeps them from passing for a quote.
_WIRE_NAME = str.maketrans({'"': "\x80", "\\": "\x81", "\x80": "\x82", "\x81": "\x82"})
_DECLARED_NAME = str.maketrans({"\x80": '"', "\x81": "\\"})


def is_awkward(name: str) -> bool:
    """Whether a Struct cannot carry `name` as it is, so that bodies need their keys respelled first."""
    return '"' in name or "\\" in name


def wire_name(name: str) -> str:
    """`name` as compiled Structs spell it; differs only where `name` `is_awkward` or no name at all."""
    return name.translate(_WIRE_NAME)


def declared_name(name: str) -> str:
    """`name` as the manifest spells it: what undoes `wire_name`."""
    return name.translate(_DECLARED_NAME)
