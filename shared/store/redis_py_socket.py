"""redis-py's connections as the adapter needs them: whole exchanges, the server's own words, prompt ends."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.commands import Command, pack
from shared.store.connection import ConnectionOptions
from shared.store.redis_url import RedisUrl

_log = structlog.get_logger(__name__)


class DriverSocket:
    """One of redis-py's connections, opened when first used."""

    def __init__(self, where: RedisUrl, options: ConnectionOptions) -> None:
        self._connection = _connection(where, options)
        self._writer: asyncio.StreamWriter | None = None
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and enter; harmless when connected. Raises StoreReplyError when refused, RedisError."""
        connection = self._connection
        if connection.is_connected:
            if not (await connection.can_read() or self._is_gone()):
                return
            await connection.disconnect(nowait=True)  # ended, or reset, since its last exchange
        opening = self._opening = asyncio.create_task(connection.connect())  # type: ignore[no-untyped-call]
        try:
            await asyncio.wait([opening])
        except asyncio.CancelledError:
            opening.cancel()
            raise
        # Needed where redis-py forgets it: to close at once although bytes are left that nobody reads.
        self._writer = connection._writer
        if opening.cancelled():
            raise StoreUnavailableError("closed")
        try:
            opening.result()
        except RedisError as exc:
            # Over a Unix socket redis-py wraps the server's refusal in a ConnectionError.
            for told in (exc, exc.__cause__):
                if isinstance(told, AuthenticationError | ResponseError):
                    raise StoreReplyError(_text(told)) from exc
            raise

    async def exchange(self, sent: bytes, count: int) -> list[Any]:
        """Send encoded commands, read their `count` replies. After an exception it must be aborted."""
        try:
            await self.open()
            await self.send(sent)
            return [await self._reply() for _ in range(count)]
        except (RedisError, OSError) as exc:
            raise StoreUnavailableError(f"connection lost: {exc}") from exc
        except StoreReplyError as exc:
            raise StoreUnavailableError(str(exc)) from exc

    async def send(self, sent: bytes) -> None:
        """Send encoded commands; `receive` brings the answers. Raises StoreUnavailableError, RedisError."""
        # Lost a moment ago: redis-py would write to what uvloop says is no socket, or quietly open another.
        if self._is_gone():
            raise StoreUnavailableError("connection lost")
        await self._connection.send_packed_command(sent)

    async def receive(self, timeout_s: float | None = None) -> Any:
        """The next push or reply; None when there is none in time. Raises StoreReplyError, RedisError."""
        try:
            return await self._connection.read_response(True, timeout_s, push_request=True)
        except ResponseError as exc:
            raise StoreReplyError(_text(exc)) from exc

    def abort(self) -> None:
        """Close it now, whatever is on its way; whoever uses it gets an error."""
        if self._opening is not None:
            self._opening.cancel()
        self._writer = self._connection._writer or self._writer
        self._connection._close()  # type: ignore[no-untyped-call]
        if self._writer is not None:
            self._writer.transport.abort()

    async def closed(self) -> None:
        """After `abort`: returns when nothing is left of it."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._writer is not None:
            with contextlib.suppress(OSError):  # what it was lost by, which was told already
                await self._writer.wait_closed()

    def _is_gone(self) -> bool:
        writer = self._connection._writer
        return writer is None or writer.is_closing()

    async def _reply(self) -> Any:
        try:
            return _in_place(await self._connection.read_response(disable_decoding=True))
        except ResponseError as exc:
            return StoreReplyError(_text(exc))


class Watcher:
    """The socket that carries the channels and tells of the server's loss."""

    def __init__(
        self, socket: DriverSocket, patience_s: float, heard: Callable[[bytes, bytes], None]
    ) -> None:
        """`heard` gets channel and message of everything said on the channels.

        After `patience_s` of silence it asks for a sign of life, and waits for it as long again.
        """
        self.socket = socket
        self._patience_s = patience_s
        self._heard = heard
        self._asked: deque[asyncio.Future[None]] = deque()  # subscriptions that wait for their confirmation

    async def open(self, loads: Sequence[Command], channels: Sequence[bytes]) -> None:
        """Enter, load scripts, subscribe. Raises StoreReplyError when refused, StoreUnavailableError."""
        commands = [("PING",), *loads, *map(_subscription, channels)]
        try:
            await self.socket.open()
            await self.socket.send(b"".join(pack(commands)))
            for _ in commands:
                await self._answered()
        except (RedisError, OSError) as exc:
            raise StoreUnavailableError(str(exc)) from exc

    async def _answered(self) -> None:
        try:
            while (said := await self.socket.receive())[:1] == [b"smessage"]:
                self._heard(said[1], said[2])
        except StoreReplyError as exc:
            _log.error("script or channel refused", reason=str(exc))

    async def subscribe(self, channel: bytes) -> None:
        """Returns when confirmed. Raises StoreReplyError, StoreUnavailableError."""
        confirmed = asyncio.get_running_loop().create_future()
        self._asked.append(confirmed)
        try:
            await self.socket.send(b"".join(pack([_subscription(channel)])))
        except (RedisError, OSError) as exc:
            raise StoreUnavailableError(f"connection lost: {exc}") from exc
        await confirmed

    async def watch(self) -> None:
        """Pass on what is heard until the socket is lost; raises StoreUnavailableError then."""
        loss = "closed"
        try:
            while True:
                await self._hear()
        except (RedisError, OSError) as exc:
            loss = f"connection lost: {exc}"
            raise StoreUnavailableError(loss) from exc
        finally:
            for confirmed in self._asked:
                if not confirmed.done():
                    confirmed.set_exception(StoreUnavailableError(loss))

    async def _hear(self) -> None:
        try:
            said = await self.socket.receive(self._patience_s)
            if said is None:
                await self.socket.send(b"".join(pack([("PING",)])))
                said = await self.socket.receive(self._patience_s)
                if said is None:
                    raise StoreUnavailableError("the server is silent")
        except StoreReplyError as exc:
            self._confirm(exc)
            return
        if isinstance(said, list):
            if said[0] == b"smessage":
                self._heard(said[1], said[2])
            elif said[0] == b"ssubscribe":
                self._confirm(None)

    def _confirm(self, refused: StoreReplyError | None) -> None:
        if not self._asked:
            raise StoreUnavailableError("a reply to nothing that was asked")
        confirmed = self._asked.popleft()
        if confirmed.done():
            return
        if refused is None:
            confirmed.set_result(None)
        else:
            confirmed.set_exception(refused)


def _subscription(channel: bytes) -> Command:
    return ("SSUBSCRIBE", channel)


def _connection(where: RedisUrl, options: ConnectionOptions) -> AbstractConnection:
    common: dict[str, Any] = {
        "db": where.database,
        "username": where.username or None,
        "password": where.password or None,
        "client_name": options.name,
        "socket_timeout": None,  # trips have their own
        "socket_connect_timeout": options.connect_s,
        "protocol": 3,
        "driver_info": None,
    }
    if where.path:
        return UnixDomainSocketConnection(path=where.path, **common)
    if where.tls:
        return SSLConnection(host=where.host, port=where.port, ssl_ca_certs=where.ca_file or None, **common)
    return Connection(host=where.host, port=where.port, **common)


def _text(error: RedisError) -> str:
    """The server's own words: redis-py takes the code off those it knows."""
    return f"{error.status_code} {error}" if error.status_code else str(error)


def _in_place(reply: Any) -> Any:
    """Errors within a list (of EXEC) as values of ours."""
    if isinstance(reply, list):
        return [_in_place(part) for part in reply]
    return StoreReplyError(_text(reply)) if isinstance(reply, ResponseError) else reply
