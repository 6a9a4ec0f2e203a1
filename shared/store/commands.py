"""Redis commands as values, and their encoding. Pure."""

from collections.abc import Callable, Sequence
from typing import Final, cast

import hiredis

Command = tuple[str | bytes | int | float, ...]
"""One command, an element a word: ("CONFIG", "GET", "save"), never ("CONFIG GET", "save")."""

# The library's stub wants a tuple of one element.
_pack: Final = cast("Callable[[Command], bytes]", hiredis.pack_command)
_NO_WORDS: Final = _pack(())


def pack(commands: Sequence[Command]) -> list[bytes]:
    """The commands as they go over the wire.

    Raises TypeError or ValueError for what is no command. One without words is none: the server does not
    answer it, so that every later reply would be taken for the one before.
    """
    packed = [_pack(command) for command in commands]
    if _NO_WORDS in packed:
        raise ValueError("a command has no words")
    return packed
