"""How Muster speaks to Redis: trips of several commands, scripts by name, sharded channels.

Two implementations share one contract: `thin` (our own, for the decide path) and `redis_py` (the library's
client). A trip is one round trip; its replies come in the order of its commands.
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from shared.errors import ConfigError, StoreReplyError
from shared.store.lua_source import lua_source

if TYPE_CHECKING:
    from shared.settings import RedisClient

Command = tuple[str | bytes | int | float, ...]
Reply = Any  # bytes, int, float, bool, None, list, dict with bytes keys, or StoreReplyError in place
Deliver = Callable[[bytes], None]

DEFAULT_TIMEOUT_S = 1.0
DEFAULT_PORT = 6379


class Script:
    """A Lua script by the SHA-1 of its text, which the server keeps."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], args: Sequence[str | bytes | int | float]) -> Command:
        """The command that runs it; a server that has lost it is given its text by the connection."""
        return ("EVALSHA", self.sha, len(keys), *keys, *args)


class Scripts:
    """The scripts that one connection has been asked for."""

    def __init__(self, source: Callable[[str], str] = lua_source) -> None:
        """`source` gives a script's text by its name."""
        self._source = source
        self._by_name: dict[str, Script] = {}
        self._by_sha: dict[str, Script] = {}

    def named(self, name: str) -> Script:
        """The script of this name; raises FileNotFoundError when there is none."""
        script = self._by_name.get(name)
        if script is None:
            script = self._by_name[name] = Script(name, self._source(name))
            self._by_sha[script.sha] = script
        return script

    def load_commands(self) -> list[Command]:
        """Commands that give a server all of them."""
        return [("SCRIPT", "LOAD", script.source) for script in self._by_name.values()]

    def missing(self, commands: Sequence[Command], replies: Sequence[Reply]) -> list[int]:
        """Places of the commands whose script the server did not have."""
        return [
            place
            for place, reply in enumerate(replies)
            if isinstance(reply, StoreReplyError)
            and str(reply).startswith("NOSCRIPT")
            and commands[place][1] in self._by_sha
        ]


class RedisConnection(Protocol):
    """One multiplexed connection; any number of tasks may use it at a time."""

    @property
    def connected(self) -> bool:
        """Whether a trip made now would be sent."""
        ...

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the first connection; raises StoreUnavailableError when there is none in time."""
        ...

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        """Send commands together, return their replies in order; an error reply comes in its place.

        Raises StoreUnavailableError when not connected, when the connection is lost, and after `timeout_s`
        seconds (1 unless given): the commands may then have run or not.
        """
        ...

    def script(self, name: str) -> Script:
        """The script `lua/<name>.lua`, ready to be called on this connection."""
        ...

    async def listen(self, channel: str, deliver: Deliver) -> None:
        """Call `deliver` with every message of a sharded channel, after reconnections too.

        Messages sent while disconnected are lost. Raises StoreUnavailableError when it cannot subscribe now.
        """
        ...

    def blocking(self) -> "RedisConnection":
        """Another connection of the same settings, for commands that block; it connects by itself."""
        ...

    async def close(self) -> None:
        """End it: trips in flight fail, nothing is left behind."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and how to enter it."""

    host: str
    port: int
    path: str | None = None  # of a unix socket
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def tls_context(self) -> ssl.SSLContext | None:
        """The context to connect with; None without TLS."""
        return ssl.create_default_context() if self.tls else None


def parse_url(url: str) -> Address:
    """Read `redis://[user:password@]host[:port][/database]`, `rediss://…` or `unix:///path[?db=N]`.

    Raises ConfigError, which never quotes the URL: it may hold a password.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
        name = query.get("db", [parts.path.strip("/") if parts.scheme != "unix" else ""])[0]
        database = int(name or 0)
    except ValueError:
        raise ConfigError("a Redis URL has a port or database that is no number") from None
    if parts.scheme not in {"redis", "rediss", "unix"} or (parts.scheme == "unix" and not parts.path):
        raise ConfigError("a Redis URL must begin with redis://, rediss:// or unix:///")
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        path=unquote(parts.path) if parts.scheme == "unix" else None,
        database=database,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
    )


def open_connection(url: str, kind: "RedisClient" = "thin") -> RedisConnection:
    """A connection of the kind named, which connects by itself, now and whenever it is lost.

    Must be called in a running event loop. Raises ConfigError for a URL that cannot be read.
    """
    address = parse_url(url)
    if kind == "thin":
        from shared.store.thin import ThinConnection

        return ThinConnection(address, Scripts())
    from shared.store.redis_py import RedisPyConnection

    return RedisPyConnection(url, Scripts())
