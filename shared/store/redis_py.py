"""`RedisConnection` on redis-py: what the thin connection is measured against. A setting swaps the two."""

import asyncio
from collections.abc import Coroutine, Sequence

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.connection import (
    DEFAULT_TIMEOUT_S,
    Command,
    Deliver,
    RedisConnection,
    Reply,
    Script,
    Scripts,
)

MAX_CONNECTIONS = 64
RETRY_S = 0.1

_log = structlog.get_logger(__name__)


class RedisPyConnection:
    """Over redis-py's pool: each trip has a connection of its own while it lasts."""

    def __init__(self, url: str, scripts: Scripts) -> None:
        self._url = url
        self._scripts = scripts
        self._client: Redis = Redis.from_url(
            url,
            protocol=3,
            max_connections=MAX_CONNECTIONS,
            socket_timeout=None,  # `trip` has its own
            retry=Retry(NoBackoff(), 0),
            client_name="muster",
        )
        # Replies as the server sends them, as the thin connection gives them.
        self._client.response_callbacks.clear()
        self._connected = False
        self._channels: dict[bytes, Deliver] = {}
        self._pubsub: PubSub | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._own(self._watch())

    @property
    def connected(self) -> bool:
        """Whether the last trip reached the server."""
        return self._connected

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the first connection; raises StoreUnavailableError when there is none in time."""
        until = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                await self.trip([("PING",)])
            except StoreUnavailableError:
                if asyncio.get_running_loop().time() >= until:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def trip(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Reply]:
        """Send commands together, return their replies in order (see `RedisConnection`)."""
        within_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        replies = await self._exchange(commands, within_s)
        missing = self._scripts.missing(commands, replies)
        if missing:
            loads = self._scripts.load_commands()
            again = await self._exchange([*loads, *(commands[place] for place in missing)], within_s)
            for place, reply in zip(missing, again[len(loads) :], strict=True):
                replies[place] = reply
        return replies

    async def _exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        try:
            async with asyncio.timeout(timeout_s):
                pipeline = self._client.pipeline(transaction=False)
                for command in commands:
                    pipeline.execute_command(*command)
                replies = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            self._connected = False
            raise StoreUnavailableError(f"Redis did not answer ({type(error).__name__})") from error
        self._connected = True
        return [
            StoreReplyError(_text(reply)) if isinstance(reply, ResponseError) else reply for reply in replies
        ]

    def script(self, name: str) -> Script:
        """The script `lua/<name>.lua`, ready to be called on this connection."""
        return self._scripts.named(name)

    async def listen(self, channel: str, deliver: Deliver) -> None:
        """Call `deliver` with every message of a sharded channel (see `RedisConnection`)."""
        name = channel.encode()
        self._channels[name] = deliver
        first = self._pubsub is None
        pubsub = self._pubsub = self._pubsub or self._client.pubsub()
        try:
            await pubsub.execute_command("SSUBSCRIBE", name)
            # Until the server has confirmed, a message may be sent to nobody.
            if first:
                await self._until_confirmed(pubsub, name)
                self._own(self._read(pubsub))
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(f"Redis did not answer ({type(error).__name__})") from error

    async def _until_confirmed(self, pubsub: PubSub, name: bytes) -> None:
        while True:
            message = await pubsub.parse_response(block=True)
            if message[0] == b"ssubscribe" and message[1] == name:
                return

    async def _read(self, pubsub: PubSub) -> None:
        while True:
            try:
                message = await pubsub.parse_response(block=True)
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S)
                await self._subscribe_again(pubsub)
                continue
            deliver = self._channels.get(message[1]) if message and message[0] == b"smessage" else None
            if deliver is not None:
                try:
                    deliver(message[2])
                except Exception:  # noqa: BLE001 -- a listener's fault must not end the connection it came on
                    _log.exception("a listener failed", channel=message[1].decode(errors="replace"))

    async def _subscribe_again(self, pubsub: PubSub) -> None:
        try:
            await pubsub.connect()  # type: ignore[no-untyped-call]
            for name in self._channels:
                await pubsub.execute_command("SSUBSCRIBE", name)
        except (RedisError, OSError) as error:
            _log.debug("Redis cannot be reached", error=str(error))

    async def _watch(self) -> None:
        """Notice by itself that the server is there again."""
        while True:
            if not self._connected:
                try:
                    await self.trip([("PING",)])
                except StoreUnavailableError as error:
                    _log.debug("Redis cannot be reached", error=str(error))
            await asyncio.sleep(RETRY_S)

    def blocking(self) -> RedisConnection:
        """Another connection of the same settings, for commands that block."""
        return RedisPyConnection(self._url, self._scripts)

    async def close(self) -> None:
        """End it: trips in flight fail, nothing is left behind."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pubsub is not None:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()

    def _own(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))


def _text(error: ResponseError) -> str:
    """The server's own text: redis-py takes some error codes off."""
    text = str(error)
    if isinstance(error, NoScriptError):
        return f"NOSCRIPT {text}"
    return text if text.partition(" ")[0].isupper() else f"ERR {text}"
