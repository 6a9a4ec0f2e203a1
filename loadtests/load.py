"""A lean HTTP load generator: prepared requests over kept-alive connections, so that it costs little.

A general client costs more CPU per request than the gateway it measures; this one writes ready bytes and
reads a reply up to its Content-Length.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_REPLY_BYTES = 1 << 20


@dataclass(slots=True)
class Tally:
    """What came of a run. Latencies in seconds, from the moment a request was due."""

    seconds: float = 0.0
    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    answered: int = 0  # decisions with source AI
    fallbacks: int = 0
    late_starts: int = 0  # requests that the generator itself sent more than 5 ms late

    def percentile_ms(self, share: float) -> float:
        """The latency in milliseconds below which `share` of the requests lie."""
        if not self.latencies_s:
            return 0.0
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def http_post(path: str, body: bytes) -> bytes:
    """One ready request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One kept-alive connection; one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send one request, return its status and body; reopens a connection that the server ended."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=MAX_REPLY_BYTES)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lowered = head.lower()
        at = lowered.index(b"content-length:") + 15
        body = await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
        if b"connection: close" in lowered:
            self.close()
        return status, body

    def close(self) -> None:
        """Close without waiting."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _record(tally: Tally, status: int, body: bytes, latency_s: float) -> None:
    tally.requests += 1
    tally.statuses[status] = tally.statuses.get(status, 0) + 1
    tally.latencies_s.append(latency_s)
    tally.answered += body.count(b'"source":"AI"')
    tally.fallbacks += body.count(b'"source":"FALLBACK"')


async def saturate(
    host: str, port: int, requests: Iterator[bytes], connections: int, seconds: float
) -> Tally:
    """Closed loop: each connection sends its next request when the last is answered."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    start = loop.time()
    end = start + seconds

    async def client() -> None:
        connection = Connection(host, port)
        try:
            while (sent := loop.time()) < end:
                status, body = await connection.exchange(next(requests))
                _record(tally, status, body, loop.time() - sent)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(client())
    tally.seconds = loop.time() - start
    return tally


async def at_rate(
    host: str, port: int, requests: Iterator[bytes], rate_per_s: float, seconds: float, connections: int
) -> Tally:
    """Open loop: requests are due evenly, answered or not; latency counts from when a request was due."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    idle: asyncio.Queue[Connection] = asyncio.Queue()
    pool = [Connection(host, port) for _ in range(connections)]
    for connection in pool:
        idle.put_nowait(connection)

    async def one(due: float) -> None:
        connection = await idle.get()
        try:
            status, body = await connection.exchange(next(requests))
            _record(tally, status, body, loop.time() - due)
        finally:
            idle.put_nowait(connection)

    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for n in range(int(rate_per_s * seconds)):
            due = start + n / rate_per_s
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            elif wait < -0.005:
                tally.late_starts += 1
            group.create_task(one(due))
    tally.seconds = loop.time() - start
    for connection in pool:
        connection.close()
    return tally


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 -- /proc
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


_TICKS = os.sysconf("SC_CLK_TCK")
