"""Reading what Redis answered: a reply is what its command promises, or an error is raised. Pure.

A server that is there and takes no work (it loads its data, its memory or disk is full, it became a replica)
is as good as away: its refusal is raised as StoreUnavailableError, whatever else it says as StoreReplyError.
"""

from collections.abc import Sequence

from shared.errors import StoreError, StoreReplyError, StoreUnavailableError
from shared.store.connection import Reply

AWAY = frozenset(
    {"LOADING", "OOM", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY"}
)


def require_done(replies: Sequence[Reply]) -> None:
    """Raise the first error among replies that are of no interest otherwise."""
    for reply in replies:
        if isinstance(reply, StoreReplyError):
            raise _unexpected(reply)


def list_of(reply: Reply) -> list[Reply]:
    """A list; raises StoreError for the server's own error or any other shape."""
    if not isinstance(reply, list):
        raise _unexpected(reply)
    return reply


def number(reply: Reply) -> int:
    """A whole number, also when it comes as text."""
    if isinstance(reply, (int, bytes)):
        return int(reply)
    raise _unexpected(reply)


def blob(reply: Reply) -> bytes:
    """Bytes as they were stored."""
    if not isinstance(reply, bytes):
        raise _unexpected(reply)
    return reply


def text(reply: Reply) -> str:
    """Text of our own or a game's, which is always valid UTF-8."""
    return blob(reply).decode()


def pairs(reply: Reply) -> dict[str, bytes]:
    """A hash's fields: RESP3 sends a map, RESP2 and scripts a flat list."""
    if isinstance(reply, dict):
        return {text(name): blob(value) for name, value in reply.items()}
    flat = list_of(reply)
    return {text(name): blob(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _unexpected(reply: Reply) -> StoreError:
    if isinstance(reply, StoreReplyError):
        code = str(reply).partition(" ")[0]
        return StoreUnavailableError(str(reply)) if code in AWAY else reply
    return StoreReplyError(f"unexpected reply of type {type(reply).__name__}")
