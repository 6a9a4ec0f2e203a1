"""What a Redis connection does while the server, or the way to it, is broken: one suite over both kinds."""

import asyncio
import gc
import ssl
import subprocess
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from shared.errors import StoreUnavailableError
from shared.settings import RedisClient
from shared.store.connection import ConnectionOptions, RedisConnection, open_connection
from tests.faults import FaultProxy
from tests.valkey import ValkeyServer

PROMPT_S = 0.4  # what "at once" may take on a busy machine; far below every timeout used here
SOON_S = 8.0
SOURCES = {"double": "return ARGV[1] * 2"}
QUICK = ConnectionOptions(trip_s=0.3, connect_s=1.0, stall_s=0.3)
Open = Callable[..., RedisConnection]


@pytest.fixture(params=["thin", "redis-py"])
def kind(request: pytest.FixtureRequest) -> RedisClient:
    return cast("RedisClient", request.param)


@pytest.fixture
async def server(make_valkey: Callable[..., ValkeyServer]) -> ValkeyServer:
    server = make_valkey()
    await server.start()
    return server


@pytest.fixture
async def proxy(server: ValkeyServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.socket) as proxy:
        yield proxy


@pytest.fixture
async def open_to(kind: RedisClient) -> AsyncIterator[Open]:
    """Opens connections; whatever has been done to them, closing them must leave no task and no socket."""
    opened: list[RedisConnection] = []
    before = asyncio.all_tasks()

    def open_(url: str, options: ConnectionOptions = QUICK) -> RedisConnection:
        opened.append(open_connection(url, kind, options=options, source=SOURCES.__getitem__))
        return opened[-1]

    yield open_
    async with asyncio.timeout(PROMPT_S):
        for connection in opened:
            await connection.close()
    named = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not [name for name in named if name.startswith("connection to")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()


@pytest.fixture
async def connection(open_to: Open, server: ValkeyServer) -> RedisConnection:
    connection = open_to(server.url)
    await connection.wait_connected(SOON_S)
    return connection


@pytest.fixture
async def proxied(open_to: Open, proxy: FaultProxy) -> RedisConnection:
    connection = open_to(f"redis://127.0.0.1:{proxy.port}")
    await connection.wait_connected(SOON_S)
    return connection


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 -- another process brings it about
            await asyncio.sleep(0.005)


async def works(connection: RedisConnection) -> None:
    """It comes back, and replies belong to their trips."""
    await until(lambda: connection.connected)
    words = [b"%d" % number for number in range(20)]
    replies = await asyncio.gather(*(connection.trip([("ECHO", word)], timeout_s=5) for word in words))
    assert replies == [[word] for word in words]


async def fails(trip: Awaitable[object], at_most_s: float = PROMPT_S) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(StoreUnavailableError):
        await trip
    assert loop.time() - started < at_most_s


async def test_a_killed_server_fails_trips_in_flight_at_once(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    waiting = [asyncio.create_task(connection.trip([("BLPOP", "none", 0)], timeout_s=60)) for _ in range(5)]
    await asyncio.sleep(0.05)
    await server.kill()
    for trip in waiting:
        await fails(trip)


async def test_without_a_server_trips_fail_at_once_until_it_is_back(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    again: list[bool] = []
    connection.on_reconnect(lambda: again.append(True))
    assert await connection.trip([("SET", "kept", 1)]) == [b"OK"]
    await server.kill()
    await until(lambda: not connection.connected)
    for _ in range(3):
        await fails(connection.trip([("PING",)], timeout_s=30))
    await fails(connection.listen("ch", print))
    await asyncio.sleep(0.2)  # by now an attempt has failed
    with pytest.raises(StoreUnavailableError, match=r"No such file|refused"):
        await connection.trip([("PING",)])
    assert not again
    await server.start()
    await works(connection)
    assert await connection.trip([("GET", "kept")]) == [b"1"]
    assert again == [True]


async def test_a_failing_reconnect_callback_ends_nothing(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(str(context.get("exception")))
    )

    def callback() -> None:
        raise RuntimeError("of the callback")

    connection.on_reconnect(callback)
    for times in (1, 2):
        await server.restart()
        await works(connection)
        await until(lambda times=times: reported == ["of the callback"] * times)  # type: ignore[misc]


async def test_scripts_and_channels_are_there_after_a_restart(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    heard: list[bytes] = []
    double = connection.script("double")
    await connection.listen("a", heard.append)
    await connection.listen("b", heard.append)
    await server.restart()
    await until(lambda: connection.connected)
    info, *receivers = await connection.trip(
        [("SCRIPT", "EXISTS", double.sha), ("SPUBLISH", "a", "1"), ("SPUBLISH", "b", "2")], timeout_s=5
    )
    assert info == [1]  # before any trip asked for it
    assert receivers == [1, 1]
    await until(lambda: heard == [b"1", b"2"])
    assert await connection.trip([double.call([], [4])], timeout_s=5) == [8]


async def test_a_server_that_still_loads_is_waited_for(
    open_to: Open, make_valkey: Callable[..., ValkeyServer]
) -> None:
    slow = {"key-load-delay": "300", "loading-process-events-interval-bytes": "1024"}
    server = make_valkey(options=slow)
    await server.start()
    connection = open_to(server.url, ConnectionOptions())
    await connection.trip([("SET", f"k{number}", "x" * 200) for number in range(3000)], timeout_s=20)
    await server.stop()
    starting = asyncio.create_task(server.start())
    await until(server.socket.exists)
    newcomer = open_to(server.url, ConnectionOptions())
    again: list[bool] = []
    newcomer.on_reconnect(lambda: again.append(True))
    await newcomer.wait_connected(SOON_S)  # it is not a refusal
    assert await newcomer.trip([("GET", "k1")]) == [b"x" * 200]
    assert not again  # it was never lost
    await works(connection)
    assert await connection.trip([("DBSIZE",)], timeout_s=5) == [3000]
    await starting


async def test_a_restart_storm_leaves_one_connection_in_step(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    failed, right = 0, 0

    async def ask(number: int) -> None:
        nonlocal failed, right
        while server_is_stormed:
            try:
                replies = await connection.trip([("ECHO", number), ("ECHO", -number)])
            except StoreUnavailableError:
                failed += 1
                await asyncio.sleep(0.002)
            else:
                assert replies == [b"%d" % number, b"%d" % -number]
                right += 1

    server_is_stormed = True
    asking = [asyncio.create_task(ask(number)) for number in range(1, 20)]
    for _ in range(5):
        await until(lambda: connection.connected)
        await asyncio.sleep(0.03)
        await server.restart()
    server_is_stormed = False
    await asyncio.gather(*asking)
    assert failed
    assert right
    await works(connection)
    (clients,) = await connection.trip([("CLIENT", "LIST")])
    assert clients.count(b"resp=3") <= 21  # of the thin kind one; of the other at most as `works` had trips


async def test_killed_sockets_are_replaced(connection: RedisConnection, server: ValkeyServer) -> None:
    again: list[bool] = []
    connection.on_reconnect(lambda: again.append(True))
    reader, writer = await asyncio.open_unix_connection(server.socket)
    for times in (1, 2, 3):
        assert await connection.trip([("PING",)]) == [b"PONG"]
        writer.write(b"CLIENT KILL USER default SKIPME yes\r\n")
        assert (await reader.readline()).startswith(b":")
        await until(lambda times=times: len(again) == times)  # type: ignore[misc]
        await works(connection)
    writer.close()


async def test_a_frozen_server_costs_a_timeout_and_nothing_gets_mixed_up(
    open_to: Open, server: ValkeyServer
) -> None:
    connection = open_to(server.url, ConnectionOptions(trip_s=0.2, stall_s=30))
    await connection.wait_connected(SOON_S)
    server.freeze()
    loop = asyncio.get_running_loop()
    started = loop.time()
    trips = [connection.trip([("ECHO", number)]) for number in range(20)]
    done = await asyncio.gather(*trips, return_exceptions=True)
    assert all(isinstance(exc, StoreUnavailableError) for exc in done)
    assert 0.19 < loop.time() - started < 0.2 + PROMPT_S
    server.thaw()
    await works(connection)


async def test_a_frozen_server_is_given_up_and_found_again(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    again: list[bool] = []
    connection.on_reconnect(lambda: again.append(True))
    server.freeze()
    await fails(connection.trip([("PING",)]), QUICK.trip_s + PROMPT_S)
    await until(lambda: not connection.connected)
    await fails(connection.trip([("PING",)], timeout_s=30))
    server.thaw()
    await works(connection)
    assert again == [True]


async def test_each_trip_has_its_own_time(open_to: Open, server: ValkeyServer) -> None:
    connection = open_to(server.url, ConnectionOptions(stall_s=30))
    await connection.wait_connected(SOON_S)
    server.freeze()
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def ended(timeout_s: float) -> float:
        with pytest.raises(StoreUnavailableError, match="in time"):
            await connection.trip([("PING",)], timeout_s=timeout_s)
        return loop.time() - started

    times = [0.5, 0.1, 0.3, 0.2, 0.4]
    late = [
        ended_s - due_s
        for ended_s, due_s in zip(await asyncio.gather(*map(ended, times)), times, strict=True)
    ]
    assert all(-0.01 < late_s < 0.1 for late_s in late), late
    server.thaw()


async def test_what_a_server_does_not_take_is_bounded(open_to: Open, server: ValkeyServer) -> None:
    connection = open_to(server.url, ConnectionOptions(stall_s=30, max_in_flight_bytes=1_000_000))
    await connection.wait_connected(SOON_S)
    big = ("ECHO", b"x" * 300_000)
    server.freeze()
    waiting = [asyncio.create_task(connection.trip([big], timeout_s=20)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="in flight"):
            await connection.trip([big], timeout_s=20)
    server.thaw()
    assert await asyncio.gather(*waiting) == [[big[1]]] * 3
    for _ in range(5):
        assert await connection.trip([big], timeout_s=20) == [big[1]]


async def test_a_frozen_server_does_not_hold_up_the_end(
    connection: RedisConnection, server: ValkeyServer
) -> None:
    server.freeze()
    big = [asyncio.create_task(connection.trip([("ECHO", b"x" * 4_000_000)], timeout_s=60)) for _ in range(3)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(PROMPT_S):
        await connection.close()
    for trip in big:
        await fails(trip)


async def test_first_connections_say_why_they_fail(
    kind: RedisClient, tmp_path: Path, proxy: FaultProxy
) -> None:
    proxy.hangs_up = True
    for url, why in (
        (f"unix://{tmp_path}/none.sock", "No such file"),
        (f"redis://127.0.0.1:{proxy.port}", "closed|reset"),
    ):
        connection = open_connection(url, kind, options=QUICK)
        try:
            with pytest.raises(StoreUnavailableError, match=why):
                await connection.trip([("PING",)])
            with pytest.raises(StoreUnavailableError, match=why):
                await connection.wait_connected(0.2)
        finally:
            await connection.close()


async def test_a_first_connection_that_hangs_is_bounded(open_to: Open, proxy: FaultProxy) -> None:
    proxy.blackhole()
    connection = open_to(f"redis://127.0.0.1:{proxy.port}")
    await fails(connection.trip([("PING",)], timeout_s=0.1), 0.1 + PROMPT_S)
    await fails(connection.wait_connected(0.1), 0.1 + PROMPT_S)
    proxy.heal()
    await works(connection)


async def test_a_reset_fails_trips_in_flight_at_once(proxied: RedisConnection, proxy: FaultProxy) -> None:
    waiting = [asyncio.create_task(proxied.trip([("BLPOP", "none", 0)], timeout_s=60)) for _ in range(3)]
    await asyncio.sleep(0.1)
    proxy.reset()
    for trip in waiting:
        await fails(trip)
    await works(proxied)


async def test_a_server_that_has_said_its_last_is_left(proxied: RedisConnection, proxy: FaultProxy) -> None:
    waiting = asyncio.create_task(proxied.trip([("BLPOP", "none", 0)], timeout_s=60))
    await asyncio.sleep(0.1)
    proxy.half_close("client")
    await fails(waiting)
    await works(proxied)


async def test_a_black_hole_is_left_when_it_is_healed(proxied: RedisConnection, proxy: FaultProxy) -> None:
    await proxied.listen("ch", print)
    proxy.blackhole()
    for _ in range(3):
        await fails(proxied.trip([("PING",)]), QUICK.trip_s + PROMPT_S)
    proxy.heal()
    await works(proxied)


async def test_latency_is_no_fault(proxied: RedisConnection, proxy: FaultProxy) -> None:
    proxy.latency_s = 0.05
    await works(proxied)


async def test_replies_in_small_pieces_are_whole(proxied: RedisConnection, proxy: FaultProxy) -> None:
    proxy.trickle_bytes = 7
    texts = [b"%d" % number * 20 for number in range(5)]
    replies = await asyncio.gather(
        *(proxied.trip([("ECHO", text), ("PING",)], timeout_s=10) for text in texts)
    )
    assert replies == [[text, b"PONG"] for text in texts]


async def test_a_trickle_too_slow_for_its_trip_times_out_in_step(open_to: Open, proxy: FaultProxy) -> None:
    connection = open_to(f"redis://127.0.0.1:{proxy.port}", ConnectionOptions(trip_s=0.3, stall_s=30))
    await connection.wait_connected(SOON_S)
    proxy.trickle_bytes = 4
    await fails(connection.trip([("ECHO", b"x" * 200)]), 0.3 + PROMPT_S)
    proxy.trickle_bytes = 0
    await works(connection)


async def test_a_server_that_hangs_up_at_once_is_not_stormed(
    proxied: RedisConnection, proxy: FaultProxy
) -> None:
    proxy.hangs_up = True
    proxy.accepted_s.clear()
    proxy.reset()
    await asyncio.sleep(1.2)
    attempts = len(proxy.accepted_s)
    # At once, then after 50, 100, 200, 400 and 800 ms, each shortened by at most a half.
    assert 3 <= attempts <= 8
    proxy.hangs_up = False
    await works(proxied)


async def test_what_nobody_asked_for_ends_the_socket(
    proxied: RedisConnection, proxy: FaultProxy, kind: RedisClient
) -> None:
    assert await proxied.trip([("PING",)])
    for noise in (b"+hello\r\n", b"!nonsense\r\n"):
        proxy.inject(noise)
        if kind == "thin":
            await until(lambda: not proxied.connected)
        await asyncio.sleep(0.05)
        await works(proxied)


async def test_a_blocking_connection_comes_back_too(proxied: RedisConnection, proxy: FaultProxy) -> None:
    blocking = proxied.blocking()
    try:
        waiting = asyncio.create_task(
            blocking.trip([("XREAD", "BLOCK", 0, "STREAMS", "s", "$")], timeout_s=60)
        )
        await asyncio.sleep(0.1)
        proxy.reset()
        await fails(waiting)
        await works(blocking)
    finally:
        await blocking.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *names, "-keyout", key, "-out", made],
        check=True,
        capture_output=True,
    )
    return made, key


async def test_speaks_tls_to_who_is_trusted(
    open_to: Open, server: ValkeyServer, certificate: tuple[Path, Path], kind: RedisClient
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with FaultProxy(server.socket, tls=context) as proxy:
        trusting = open_to(
            f"rediss://localhost:{proxy.port}/1?ssl_ca_certs={certificate[0]}", ConnectionOptions()
        )
        await trusting.wait_connected(SOON_S)
        again: list[bool] = []
        trusting.on_reconnect(lambda: again.append(True))
        big = b"x" * 1_000_000
        assert await trusting.trip([("ECHO", big), ("PING",)], timeout_s=10) == [big, b"PONG"]
        proxy.reset()
        await until(lambda: bool(again))
        await works(trusting)
        for url in (
            f"rediss://localhost:{proxy.port}",  # signed by nobody we know
            f"rediss://127.0.0.1:{proxy.port}?ssl_ca_certs={certificate[0]}",  # another's certificate
        ):
            wary = open_to(url)
            with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
                await wary.wait_connected(0.5)
            await wary.close()
        await trusting.close()
