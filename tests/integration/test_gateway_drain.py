"""The end of a gateway as its connections meet it: idle ones are closed, a request in flight is answered."""

import asyncio

from gateway.http import Call, Edge, Route
from gateway.reply import Reply, reply_json
from shared.clock import SystemClock
from shared.metrics import Metrics

GET = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_request_in_flight_outlives_the_idle_connections() -> None:
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def slow(_call: Call) -> Reply:
        arrived.set()
        await finish.wait()
        return reply_json(200, {"ok": True})

    edge = Edge({("GET", "/slow"): Route("GET", "/slow", slow)}, SystemClock(), 80, Metrics())
    server = await asyncio.get_running_loop().create_server(edge.server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(GET)
        await arrived.wait()
        server.close()
        draining = asyncio.create_task(edge.drain(idle_s=0.1, answer_s=20))
        assert await idle_reader.read() == b""
        assert not draining.done()
        finish.set()
        reply = await reader.read()
        await draining
    finally:
        await edge.close()
        for each in (writer, idle_writer):
            each.close()
            await each.wait_closed()
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close\r\n" in reply
    assert reply.endswith(b'{"ok":true}')


async def test_what_takes_too_long_is_cut() -> None:
    arrived = asyncio.Event()

    async def stuck(_call: Call) -> Reply:
        arrived.set()
        return await asyncio.get_running_loop().create_future()

    edge = Edge({("GET", "/slow"): Route("GET", "/slow", stuck)}, SystemClock(), 80, Metrics())
    server = await asyncio.get_running_loop().create_server(edge.server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        writer.write(GET)
        await arrived.wait()
        server.close()
        async with asyncio.timeout(10):
            await edge.drain(idle_s=0.1, answer_s=0.1)
            await edge.close()
            assert await reader.read() == b""
    finally:
        writer.close()
        await writer.wait_closed()
