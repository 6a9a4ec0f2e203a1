"""The inside listener over real sockets."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from shared.errors import ConfigError
from shared.internal_http import InternalServer


class Switch:
    on = False

    def __call__(self) -> bool:
        return self.on


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_health_and_metrics(client: aiohttp.ClientSession) -> None:
    registry = CollectorRegistry()
    Counter("muster_decisions", "Decisions made", registry=registry).inc(3)
    ready = Switch()
    server = InternalServer(ready, registry)
    host, port = await server.start("127.0.0.1:0")
    base = f"http://{host}:{port}"
    try:
        assert (await client.get(f"{base}/livez")).status == 200
        assert (await client.get(f"{base}/readyz")).status == 503
        ready.on = True
        assert (await client.get(f"{base}/readyz")).status == 200
        metrics = await client.get(f"{base}/metrics")
        assert metrics.content_type == "text/plain"
        assert "muster_decisions_total 3.0" in await metrics.text()
        assert (await client.get(f"{base}/v1/decide")).status == 404
    finally:
        await server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(f"{base}/livez")


async def test_a_socket_handed_on_is_served(client: aiohttp.ClientSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        server = InternalServer(Switch(), CollectorRegistry())
        assert await server.start(f"fd:{listener.detach()}") == address
    assert (await client.get(f"http://127.0.0.1:{address[1]}/livez")).status == 200
    await server.stop()


async def test_stopping_twice_or_unstarted_is_harmless() -> None:
    server = InternalServer(Switch(), CollectorRegistry())
    await server.stop()
    await server.start("127.0.0.1:0")
    await server.stop()
    await server.stop()


@pytest.mark.parametrize("bind", ["fd:999", "fd:x", "nowhere", "127.0.0.1:70000"])
async def test_an_address_that_cannot_be_had_names_the_setting(bind: str) -> None:
    with pytest.raises(ConfigError, match="MUSTER_INTERNAL_BIND"):
        await InternalServer(Switch(), CollectorRegistry()).start(bind)


async def test_a_taken_port_is_one_readable_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            await InternalServer(Switch(), CollectorRegistry()).start(f"127.0.0.1:{port}")
