"""A TCP proxy that breaks what passes through it, in front of a port or a Unix socket."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

CHUNK_BYTES = 1 << 16
TICK_S = 0.01  # between the pieces of a trickle
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time

Side = Literal["client", "server"]


class _Link:
    """One connection that passes through: the streams to both ends."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writers: dict[Side, asyncio.StreamWriter] = {"client": client, "server": server}
        self.ended: set[asyncio.StreamWriter] = set()  # those to whom nothing more is said

    def end(self, writer: asyncio.StreamWriter) -> None:
        """Say to one end that nothing more comes."""
        if writer in self.ended or writer.is_closing():
            return
        self.ended.add(writer)
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS has no half of an end
            writer.close()


class FaultProxy:
    """`async with FaultProxy(upstream) as proxy:` listens on `proxy.port` of the loopback.

    Faults may be changed at any time and hold for connections open and to come:
    `latency_s` delays every chunk, each way; `trickle_bytes` lets so many through each 10 ms; `hangs_up` ends
    new connections at once.
    """

    def __init__(self, upstream: Path | tuple[str, int], *, tls: ssl.SSLContext | None = None) -> None:
        """`upstream` is a Unix socket or a host and port; with `tls`, clients must speak it, upstream not."""
        self.latency_s = 0.0
        self.trickle_bytes = 0
        self.hangs_up = False
        self.accepted_s: list[float] = []  # when, by the loop's clock
        self._upstream = upstream
        self._tls = tls
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: dict[_Link, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def blackhole(self) -> None:
        """Let nothing through from now on: no data, no end, no reset. New connections are accepted."""
        self._flowing.clear()

    def heal(self) -> None:
        """Let through again; what was held back is delivered."""
        self._flowing.set()

    def reset(self, *, spared: int = 0) -> None:
        """End every connection with a reset, towards both ends; all but the oldest `spared`."""
        for link in list(self._links)[spared:]:
            for writer in link.writers.values():
                end = writer.get_extra_info("socket")
                if end is not None and end.family != socket.AF_UNIX:  # None of one already closed
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()

    def half_close(self, towards: Side) -> None:
        """Tell one end that the other has finished sending; the way back stays open."""
        for link in self._links:
            link.end(link.writers[towards])

    def inject(self, data: bytes) -> None:
        """Send every client what its server never said."""
        for link in self._links:
            if not link.writers["client"].is_closing():
                link.writers["client"].write(data)

    @property
    def open_connections(self) -> int:
        return len(self._links)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("test: proxy")
        self._tasks.add(task)
        self.accepted_s.append(asyncio.get_running_loop().time())
        try:
            async with _ending(writer):
                if not self.hangs_up:
                    await self._join(reader, writer)
        except OSError:
            return  # an end went away
        finally:
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._upstream, Path):
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        else:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        link = _Link(writer, up_writer)
        self._links[link] = None
        try:
            async with _ending(up_writer), asyncio.TaskGroup() as ways:
                ways.create_task(self._pass(reader, up_writer, link), name="test: proxy")
                ways.create_task(self._pass(up_reader, writer, link), name="test: proxy")
        finally:
            del self._links[link]

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, link: _Link) -> None:
        try:
            while chunk := await source.read(CHUNK_BYTES):
                await self._forward(chunk, target, link)
            await self._flowing.wait()
            link.end(target)
        except OSError:  # an end went away: so does the other
            for writer in link.writers.values():
                writer.transport.abort()

    async def _forward(self, chunk: bytes, target: asyncio.StreamWriter, link: _Link) -> None:
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        size = self.trickle_bytes or len(chunk)
        for start in range(0, len(chunk), size):
            await self._flowing.wait()
            if target in link.ended:
                return
            target.write(chunk[start : start + size])
            await target.drain()
            if size < len(chunk):
                await asyncio.sleep(TICK_S)


@contextlib.asynccontextmanager
async def _ending(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
