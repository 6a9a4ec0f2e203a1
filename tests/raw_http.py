"""HTTP/1.1 by hand: requests go out byte for byte as a test wrote them, replies are read strictly."""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 5.0  # no reply takes longer
Headers = Sequence[tuple[str, str]]

# What must never leave the service: Python's traces, paths of its files, keys of its store.
_PLACES = [
    re.escape(str(place)).encode() for place in (Path(__file__).parents[1], sys.prefix, tempfile.gettempdir())
]
_INSIDES = re.compile(
    b"|".join([rb'Traceback|File "|\.(?:py|lua|sql)\b|\{q\d+\}|\{[sg]:[0-9a-f]{8}', *_PLACES])
)


@dataclass(frozen=True, slots=True)
class RawReply:
    """One reply as it came."""

    status: int
    headers: Headers
    body: bytes
    version: str = "HTTP/1.1"

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def closes(self) -> bool:
        """Whether no other request can follow on this connection."""
        options = [value.lower() for value in self.all("Connection")]
        return "close" in options or (self.version != "HTTP/1.1" and "keep-alive" not in options)


def request_bytes(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b"", *, chunked: bool = False
) -> bytes:
    """One request with exactly these headers and what frames its body."""
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if chunked:
        head.append("Transfer-Encoding: chunked")
        middle = len(body) // 2
        parts = [part for part in (body[:middle], body[middle:]) if part]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    elif body or method in ("POST", "PUT", "PATCH"):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def port_of(url: str) -> int:
    """The port of an address as `muster up` prints it."""
    port = urlsplit(url).port
    assert port is not None
    return port


class Connection:
    """One connection; requests on it go out when told, replies are read when asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send, as far as the other side takes it: one that refuses early may stop reading."""
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def reply(self, method: str = "POST") -> RawReply | None:
        """The next reply; None when the connection ends without one. Raises TimeoutError, ValueError."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                if getattr(error, "partial", b""):
                    raise ValueError("half a reply") from error
                return None
            return await self._rest(method, head)

    async def _rest(self, method: str, head: bytes) -> RawReply | None:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        version, status, *_ = first.split(" ", 2)
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise ValueError(f"not HTTP: {first!r}")
        fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        reply = RawReply(int(status), fields, b"", version)
        lengths = reply.all("Content-Length")
        if int(status) < 200:
            return reply
        if len(lengths) != 1 or reply.all("Transfer-Encoding"):
            raise ValueError(f"no reply of a known length: {head!r}")
        body = b"" if method == "HEAD" else await self.reader.readexactly(int(lengths[0]))
        return RawReply(int(status), fields, body, version)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection of its own, closed afterwards."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(port: int, data: bytes, method: str = "POST") -> RawReply | None:
    """Send one request on a connection of its own and read its reply."""
    async with connected(port) as connection:
        await connection.send(data)
        return await connection.reply(method)


async def post(port: int, path: str, value: Any, headers: Iterable[tuple[str, str]] = ()) -> RawReply:
    """Send a body as the vectors' default headers have it; `value` is bytes or JSON."""
    body = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    fields = [("Host", f"127.0.0.1:{port}"), ("Content-Type", "application/json"), *headers]
    reply = await exchange(port, request_bytes("POST", path, fields, body))
    assert reply is not None, "no reply"
    return reply


def require_rules(reply: RawReply, method: str = "POST", sent: bytes = b"") -> None:
    """What holds for every reply: the vectors' "Always", A2G Security "Errors", nothing of our insides.

    What looks like our insides and was `sent` is an echo: ids come back as they were given.
    """
    assert "*" not in reply.all("Access-Control-Allow-Origin")
    assert all(found in sent for found in _INSIDES.findall(reply.body)), reply.body
    if method == "HEAD" or reply.status < 200:
        return
    assert reply.all("Content-Type") == ["application/json"], reply
    read = reply.json
    assert isinstance(read, dict), reply.body
    if reply.status >= 400 and method != "OPTIONS":
        assert isinstance(read["error"], str)
        assert read["error"]
        assert set(read) <= {"error", "code"}, read
