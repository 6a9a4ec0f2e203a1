"""Reading what Redis answered: a reply is what its command promises, or an error is raised. Pure."""

from shared.errors import StoreReplyError
from shared.store.connection import Reply


def list_of(reply: Reply) -> list[Reply]:
    """A list; raises StoreReplyError for the server's own error or any other shape."""
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


def _unexpected(reply: Reply) -> StoreReplyError:
    if isinstance(reply, StoreReplyError):
        return reply
    return StoreReplyError(f"unexpected reply of type {type(reply).__name__}")
