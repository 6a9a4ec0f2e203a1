"""How Muster speaks to Redis: the face that every store is written against, and the way to open one.

Two kinds stand behind it: `thin` (hiredis over one multiplexed socket; the decide path rests on its price)
and `redis-py` (the well-known driver). Both pass one contract suite; a setting swaps them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared.settings import RedisClient
from shared.store.commands import Command
from shared.store.lua_source import lua_source
from shared.store.redis_url import parse_redis_url
from shared.store.scripts import Script, Scripts

__all__ = [
    "Command",
    "ConnectionOptions",
    "Deliver",
    "RedisConnection",
    "Reply",
    "Script",
    "open_connection",
]

Reply = Any
"""As RESP3 has it: bytes, int, float, bool, None, list (or set), dict with bytes keys; StoreReplyError."""

Deliver = Callable[[bytes], None]


class RedisConnection(Protocol):
    """A connection that keeps itself up: lost, it is opened again in the background until `close`.

    Any number of tasks may use it at a time.
    """

    @property
    def connected(self) -> bool:
        """Whether a trip made now would be sent."""
        ...

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the first connection.

        Raises StoreUnavailableError with the last reason when there is none in time, or as soon as the server
        was reached and refused us (password, database), which waiting does not mend.
        """
        ...

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        """Send all commands at once (not as a transaction); returns their replies in order.

        `timeout_s` is `ConnectionOptions.trip_s` unless given. An error reply stands in its command's place
        as a StoreReplyError value. A script that the server has lost is loaded and its command run once more,
        after the trip's other commands. Raises StoreUnavailableError when the connection is lost, the time is
        up or nothing is connected (then at once): what was sent may have been executed. So may the commands
        of a caller that was cancelled; its replies never reach anybody else. Raises TypeError or ValueError
        for a command that cannot be encoded, and then sends none.

        Commands that change the connection itself (SELECT, SUBSCRIBE, MONITOR, CLIENT REPLY, …) are not for
        trips; commands that block (XREAD BLOCK, …) are for a connection made by `blocking`.
        """
        ...

    def script(self, name: str) -> Script:
        """The script `lua/<name>.lua`, loaded on every connection from now on. Raises FileNotFoundError."""
        ...

    async def listen(self, channel: str, deliver: Deliver) -> None:
        """Call `deliver` with every message of a sharded channel, until the connection is closed.

        Returns once the server has confirmed; restored after a loss, during which messages are missed. A
        channel has one listener, the last. What `deliver` raises goes to the loop's exception handler, which
        logs it. Raises StoreUnavailableError or StoreReplyError, and then `deliver` is never called.
        """
        ...

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call it each time a lost connection works again."""
        ...

    def blocking(self) -> "RedisConnection":
        """Another connection with the same settings, for commands that block; its asker closes it."""
        ...

    async def close(self) -> None:
        """End every task and socket; trips in flight fail. Harmless when closed."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Bounds of one connection. Seconds and bytes."""

    name: str = "muster"  # as CLIENT LIST shows it
    trip_s: float = 1.0  # a decide request has 3.5 s for about six trips
    connect_s: float = 3.0  # one attempt: socket, TLS and handshake
    stall_s: float = 2.0  # how much longer than its time a reply may be due until the socket is given up
    max_in_flight_bytes: int = 64 << 20  # of commands whose replies are outstanding
    max_sockets: int = 32  # of the redis-py kind, which needs one for every concurrent trip


def open_connection(
    url: str,
    kind: RedisClient = "thin",
    *,
    options: ConnectionOptions | None = None,
    source: Callable[[str], str] = lua_source,
) -> RedisConnection:
    """A connection that opens itself, now and whenever it is lost; first trips wait for the first attempt.

    `source` gives a script's text by its name. Must be called in a running event loop. Raises ConfigError for
    a URL that cannot be used.
    """
    where, bounds, scripts = parse_redis_url(url), options or ConnectionOptions(), Scripts(source)
    if kind == "thin":
        from shared.store.thin import ThinConnection

        return ThinConnection(where, bounds, scripts)
    from shared.store.redis_py import RedisPyConnection  # only who asks for the driver pays for loading it

    return RedisPyConnection(where, bounds, scripts)
