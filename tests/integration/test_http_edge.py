"""The HTTP edge on a socket, with use cases of a line: what of HTTP it takes, what it refuses and how."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.http import MAX_BODY_BYTES, Call, Edge, Route
from gateway.reply import Reply, reply_json
from shared.clock import SystemClock
from shared.metrics import Metrics
from tests.raw_http import Connection, RawReply, connected, exchange, request_bytes, require_rules


class Served:
    """An edge whose `POST /length` tells how long the body was, once `answering` is set."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()
        routes = {("POST", "/length"): Route("POST", "/length", self._length)}
        self.edge = Edge(routes, SystemClock(), 80, Metrics())
        self.port = 0

    async def _length(self, call: Call) -> Reply:
        self.asked.set()
        await self.answering.wait()
        return reply_json(200, {"length": len(call.body)})


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    server = await asyncio.get_running_loop().create_server(served.edge.server, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    yield served
    server.close()
    await served.edge.close()


@pytest.fixture
async def port(served: Served) -> int:
    return served.port


def post(*headers: tuple[str, str], body: bytes = b"12345", chunked: bool = False) -> bytes:
    fields = [("Host", "localhost"), ("Content-Type", "application/json"), *headers]
    return request_bytes("POST", "/length", fields, body, chunked=chunked)


def head_of(request: bytes) -> bytes:
    return request.split(b"\r\n\r\n")[0] + b"\r\n\r\n"


def require_status(reply: RawReply | None, status: int) -> RawReply:
    assert reply is not None
    require_rules(reply)
    assert reply.status == status, reply
    return reply


@asynccontextmanager
async def awaited(port: int, *, chunked: bool = False) -> AsyncIterator[Connection]:
    """A connection whose request waits for its body: it has been told to go on."""
    async with connected(port) as connection:
        await connection.send(head_of(post(("Expect", "100-Continue"), chunked=chunked)))
        reply = await connection.reply()
        assert reply is not None
        assert reply.status == 100
        yield connection


async def test_a_sender_that_waits_is_told_to_go_on(port: int) -> None:
    async with awaited(port) as connection:
        await connection.send(b"12345")
        assert require_status(await connection.reply(), 200).json == {"length": 5}
        await connection.send(post())
        assert require_status(await connection.reply(), 200).json == {"length": 5}


async def test_a_sender_that_does_not_wait_hears_nothing_before_the_reply(port: int) -> None:
    reply = await exchange(port, post(("Expect", "100-continue")))
    assert require_status(reply, 200).json == {"length": 5}


async def test_http_1_0_knows_no_going_on(port: int) -> None:
    async with connected(port) as connection:
        await connection.send(head_of(post(("Expect", "100-continue"))).replace(b"HTTP/1.1", b"HTTP/1.0"))
        for _ in range(20):
            await asyncio.sleep(0)  # the edge, on the same loop, comes to wait for the body
        await connection.send(b"12345")
        require_status(await connection.reply(), 200)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "unheard-of"])
@pytest.mark.parametrize(
    "body",
    [gzip.compress(b"{}"), b"\x1f\x8b no gzip", gzip.compress(b" " * 10_000_000)],
    ids=["good", "broken", "bomb"],
)
async def test_a_compressed_body_is_refused(
    port: int, coding: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await exchange(port, post(("Content-Encoding", coding), body=body))
    assert "compressed" in require_status(reply, 415).json["error"]
    assert caplog.records == []


@pytest.mark.parametrize(
    "broken", [b"zz\r\n", b"-1\r\n", b"5\r\n123456\r\n", b"3\r\nabc\r\n0\r\nno header\r\n\r\n"]
)
async def test_a_body_with_broken_framing_fails_at_once(
    port: int, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with awaited(port, chunked=True) as connection:
        await connection.send(b"3\r\nabc\r\n" + broken)
        assert require_status(await connection.reply(), 400).closes
        assert await connection.reply() is None
    assert caplog.records == []


async def test_nonsense_behind_a_request_under_way_leaves_that_alone(served: Served) -> None:
    served.answering.clear()
    async with connected(served.port) as connection:
        await connection.send(post())
        await served.asked.wait()
        await connection.send(b"nonsense\r\n\r\n")
        for _ in range(20):
            await asyncio.sleep(0)  # the edge, on the same loop, comes to read it
        served.answering.set()
        assert require_status(await connection.reply(), 200).json == {"length": 5}
        assert require_status(await connection.reply(), 400).closes
        assert await connection.reply() is None


async def test_a_body_that_breaks_off_after_its_refusal_is_not_waited_for(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(port) as connection:
        head = head_of(post(chunked=True)).replace(b"application/json", b"text/plain")
        await connection.send(head + b"3\r\nabc\r\n")
        require_status(await connection.reply(), 415)
        await connection.send(b"zz\r\n")
        assert await connection.reply() is None
    assert caplog.records == []


async def test_an_end_of_the_connection_amid_a_body_ends_its_request(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with awaited(port, chunked=True) as connection:
        await connection.send(b"3\r\nabc\r\n")
        connection.writer.write_eof()
        require_status(await connection.reply(), 400)
        assert await connection.reply() is None
    async with connected(port) as connection:  # before the edge has looked at it
        await connection.send(post()[:-1])
        connection.writer.write_eof()
        require_status(await connection.reply(), 400)
        assert await connection.reply() is None
    async with connected(port) as connection:
        await connection.send(b"POST /length HTT")
        connection.writer.write_eof()
        assert await connection.reply() is None
    async with connected(port) as connection:
        connection.writer.write_eof()
        assert await connection.reply() is None
    assert caplog.records == []


async def test_a_body_that_does_not_come_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.http.BODY_TIMEOUT_S", 0.1)
    async with awaited(served.port) as connection:
        await connection.send(b"123")
        assert require_status(await connection.reply(), 408).closes
        assert await connection.reply() is None
    assert not served.asked.is_set()
    assert caplog.records == []


async def test_a_sender_that_has_said_all_is_still_answered(served: Served) -> None:
    async with connected(served.port) as connection:  # before the edge has looked at it
        await connection.send(post())
        connection.writer.write_eof()
        assert require_status(await connection.reply(), 200).json == {"length": 5}
        assert await connection.reply() is None
    served.answering.clear()
    served.asked.clear()
    async with connected(served.port) as connection:  # while it is being answered
        await connection.send(post())
        await served.asked.wait()
        connection.writer.write_eof()
        for _ in range(20):
            await asyncio.sleep(0)  # the edge, on the same loop, comes to notice
        served.answering.set()
        assert require_status(await connection.reply(), 200).json == {"length": 5}
        assert await connection.reply() is None


async def test_an_idle_connection_ends_with_its_sender(port: int) -> None:
    async with connected(port) as connection:
        await connection.send(post())
        require_status(await connection.reply(), 200)
        connection.writer.write_eof()
        assert await connection.reply() is None


async def test_a_target_that_names_another_host_is_refused(port: int) -> None:
    fields = [("Host", "localhost"), ("Content-Type", "application/json")]
    for target, status in [("http://evil.example/length", 403), (f"http://127.0.0.1:{port}/length", 200)]:
        require_status(await exchange(port, request_bytes("POST", target, fields, b"{}")), status)


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0", "HTTP/11.1"])
async def test_other_versions_are_refused_in_one_that_is_spoken(port: int, version: str) -> None:
    reply = require_status(await exchange(port, post().replace(b"HTTP/1.1", version.encode())), 400)
    assert reply.version in ("HTTP/1.0", "HTTP/1.1")
    assert reply.closes


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_have_its_full_size_and_no_more(port: int, *, chunked: bool) -> None:
    fits = await exchange(port, post(body=b"x" * MAX_BODY_BYTES, chunked=chunked))
    assert require_status(fits, 200).json == {"length": MAX_BODY_BYTES}
    too_large = await exchange(port, post(body=b"x" * (MAX_BODY_BYTES + 1), chunked=chunked))
    assert require_status(too_large, 413).closes
