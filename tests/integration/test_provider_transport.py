"""The provider transport against servers that misbehave on real sockets, and what each failure costs."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from shared.config import ProviderConfig
from workers.providers.base import HttpCall, ModelRequest, Question
from workers.providers.client import Attempt, ProviderClient
from workers.providers.credentials import ProviderKey
from workers.providers.errors import (
    ProviderError,
    ProviderMalformedError,
    ProviderTimeoutError,
    ProviderUnreachableError,
)
from workers.providers.transport import HttpReply, ProviderTransport

KEY = "sk-canary-5f0c2e"
CALL = HttpCall("/v1/systemone", b'{"state":{}}', {"content-type": "application/json"})
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def transport() -> AsyncIterator[ProviderTransport]:
    transport = ProviderTransport(max_reply_bytes=10_000)
    yield transport
    await transport.close()


@contextlib.asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[str]:
    """A loopback server that does `behaviour` with each connection; yields its address."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await behaviour(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return head + await reader.readexactly(length)


def replying(reply: bytes) -> Behaviour:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(reply)
        await writer.drain()

    return behaviour


async def send(transport: ProviderTransport, url: str, timeout_ms: int = 2_000) -> HttpReply:
    return await transport.send(url, CALL, ProviderKey(KEY), timeout_ms)


async def failure(transport: ProviderTransport, url: str, timeout_ms: int = 2_000) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await send(transport, url, timeout_ms)
    return caught.value


async def test_the_call_arrives_as_built_with_the_key_in_one_header(transport: ProviderTransport) -> None:
    seen: list[bytes] = []

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with serving(behaviour) as url:
        reply = await send(transport, url + "/")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"{}", "application/json")
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/systemone HTTP/1.1\r\n")
    assert body == CALL.body
    assert seen[0].count(KEY.encode()) == 1
    assert f"authorization: bearer {KEY}" in head.decode().lower()


async def test_connections_are_kept_and_used_again(transport: ProviderTransport) -> None:
    connections = 0

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(5):
            await read_request(reader)
            writer.write(OK)

    async with serving(behaviour) as url:
        for _ in range(5):
            await send(transport, url)
    assert connections == 1


async def test_a_refused_connection_is_unreachable_and_free(transport: ProviderTransport) -> None:
    async with serving(replying(OK)) as url:
        pass
    error = await failure(transport, url)
    assert isinstance(error, ProviderUnreachableError)
    assert not error.billed


async def test_a_name_that_does_not_resolve_is_unreachable(transport: ProviderTransport) -> None:
    error = await failure(transport, "http://provider.invalid")
    assert isinstance(error, ProviderUnreachableError)
    assert not error.billed


async def test_a_reset_after_sending_is_unreachable_and_may_be_billed(transport: ProviderTransport) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.transport.abort()

    async with serving(behaviour) as url:
        error = await failure(transport, url)
    assert isinstance(error, ProviderUnreachableError)
    assert error.billed


async def test_a_reply_cut_short_is_unreachable(transport: ProviderTransport) -> None:
    async with serving(replying(OK.replace(b"length: 2", b"length: 200"))) as url:
        error = await failure(transport, url)
    assert isinstance(error, ProviderUnreachableError)
    assert error.billed


async def test_a_server_that_closes_its_side_before_replying_is_unreachable(
    transport: ProviderTransport,
) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await reader.read()

    async with serving(behaviour) as url:
        error = await failure(transport, url)
    assert isinstance(error, ProviderUnreachableError)


async def test_silence_is_a_timeout_that_may_be_billed(transport: ProviderTransport) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(behaviour) as url:
        error = await failure(transport, url, timeout_ms=80)
    assert isinstance(error, ProviderTimeoutError)
    assert error.billed


async def test_a_trickle_does_not_extend_the_time(transport: ProviderTransport) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK.replace(b"length: 2", b"length: 5000"))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with serving(behaviour) as url:
        before = asyncio.get_running_loop().time()
        error = await failure(transport, url, timeout_ms=100)
        took_s = asyncio.get_running_loop().time() - before
    assert isinstance(error, ProviderTimeoutError)
    assert error.billed
    assert took_s < 1.5


async def test_without_time_left_nothing_is_sent(transport: ProviderTransport) -> None:
    arrived = False

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await read_request(reader)
        arrived = True

    async with serving(behaviour) as url:
        error = await failure(transport, url, timeout_ms=0)
    assert isinstance(error, ProviderTimeoutError)
    assert not error.billed
    assert not arrived


@pytest.mark.parametrize("framing", ["length", "chunked", "none"])
async def test_an_oversized_reply_is_cut_off(transport: ProviderTransport, framing: str) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        header = {
            "length": b"content-length: 99999999\r\n",
            "chunked": b"transfer-encoding: chunked\r\n",
            "none": b"connection: close\r\n",
        }[framing]
        writer.write(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n")
        while True:
            part = b" " * 4_096
            writer.write(b"1000\r\n%b\r\n" % part if framing == "chunked" else part)
            await writer.drain()

    async with serving(behaviour) as url:
        error = await failure(transport, url)
    assert isinstance(error, ProviderMalformedError)
    assert "10000 bytes" in str(error)
    assert error.billed


async def test_a_reply_just_within_the_bound_is_read(transport: ProviderTransport) -> None:
    body = b" " * 10_000
    async with serving(replying(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n" + body)) as url:
        assert (await send(transport, url)).body == body


async def test_a_redirect_is_not_followed(transport: ProviderTransport) -> None:
    followed = False

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal followed
        followed = True

    async with serving(elsewhere) as target:
        reply = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: %b/x\r\ncontent-length: 0\r\n\r\n"
        async with serving(replying(reply % target.encode())) as url:
            assert (await send(transport, url)).status == 307
    assert not followed


async def test_a_compressed_reply_is_refused(transport: ProviderTransport) -> None:
    async with serving(replying(OK.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"))) as url:
        assert isinstance(await failure(transport, url), ProviderMalformedError)


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    ],
    ids=["ssh", "tls", "status", "header"],
)
async def test_something_that_is_not_http_is_malformed_or_unreachable(
    transport: ProviderTransport, garbage: bytes
) -> None:
    async with serving(replying(garbage)) as url:
        error = await failure(transport, url)
    assert isinstance(error, ProviderMalformedError | ProviderUnreachableError)
    assert error.billed


async def test_no_exception_and_nothing_chained_to_it_shows_the_key(transport: ProviderTransport) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 bad " + KEY.encode() + b"\r\n\r\n")
        await reader.read()

    async def echo_in_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + KEY.encode() + b"\r\n\r\n")
        await reader.read()

    for behaviour in (echo, echo_in_header, replying(OK.replace(b"length: 2", b"length: 200"))):
        async with serving(behaviour) as url:
            error = await failure(transport, url, timeout_ms=300)
        shown = "".join(traceback.format_exception(error)) + repr(error)
        assert KEY not in shown
        assert error.__context__ is None
        assert error.__cause__ is None


async def test_cancelling_a_call_leaves_the_transport_usable(transport: ProviderTransport) -> None:
    asked = asyncio.Event()

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if not asked.is_set():
            asked.set()
            await reader.read()
        writer.write(OK)

    async with serving(behaviour) as url:
        task = asyncio.ensure_future(send(transport, url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await send(transport, url)).status == 200


REQUEST = ModelRequest(
    state='{"world":"A cave."}',  # 19 characters
    questions=[Question("q1", '{"hp":1}', '{"a":"A","b":"B"}', ("a", "b"))],  # 8 and 17
)
ESTIMATE = 11  # 44 characters
PRICE_NANOUSD = 42  # a token, at $0.042 per million


async def ask(url: str, transport: ProviderTransport, **more: object) -> Attempt:
    values = {"kind": "systemone", "base_url": url, "model": "m", "price_per_mtok_usd": 0.042} | more
    client = ProviderClient("main", ProviderConfig(**values), transport, {"KEY": KEY})  # type: ignore[arg-type]
    return await client.ask(REQUEST, 500)


def json_reply(body: bytes, status: bytes = b"200 OK") -> Behaviour:
    return replying(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


async def test_an_answered_call_costs_what_the_provider_counted(transport: ProviderTransport) -> None:
    body = b'{"answers":{"q1":{"choice":"a"}},"usage":{"input_tokens":100,"output_tokens":2}}'
    async with serving(json_reply(body)) as url:
        attempt = await ask(url, transport)
    assert attempt.error is None
    assert (attempt.usage.input_tokens, attempt.estimated) == (100, False)
    assert attempt.cost_nanousd == 100 * PRICE_NANOUSD


async def test_without_a_count_a_call_costs_the_estimate(transport: ProviderTransport) -> None:
    async with serving(json_reply(b'{"answers":{"q1":{"choice":"a"}},"usage":{"input_tokens":0}}')) as url:
        attempt = await ask(url, transport)
    assert (attempt.usage.input_tokens, attempt.estimated) == (ESTIMATE, True)
    assert attempt.cost_nanousd == ESTIMATE * PRICE_NANOUSD


async def test_cached_and_output_tokens_have_their_own_prices(transport: ProviderTransport) -> None:
    body = b'{"answers":{},"usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":5}}'
    async with serving(json_reply(body)) as url:
        attempt = await ask(url, transport, cached_price_per_mtok_usd=0.01, output_price_per_mtok_usd=0.4)
    assert attempt.cost_nanousd == 40 * 42 + 60 * 10 + 5 * 400


@pytest.mark.parametrize(
    ("status", "kind", "tokens"),
    [
        (b"429 Too Many Requests", "overloaded", 0),
        (b"529 Overloaded", "overloaded", 0),
        (b"401 Unauthorized", "credentials", 0),
        (b"422 Unprocessable", "rejected", 0),
        (b"500 Oops", "failed", ESTIMATE),
        (b"200 OK", "malformed", ESTIMATE),
    ],
)
async def test_a_failed_call_costs_only_where_the_provider_may_have_worked(
    transport: ProviderTransport, status: bytes, kind: str, tokens: int
) -> None:
    async with serving(json_reply(b"oops", status)) as url:
        attempt = await ask(url, transport)
    assert attempt.reply is None
    assert attempt.error is not None
    assert attempt.error.kind == kind
    assert attempt.cost_nanousd == tokens * PRICE_NANOUSD


async def test_a_call_timed_out_after_sending_costs_the_estimate(transport: ProviderTransport) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(behaviour) as url:
        attempt = await ask(url, transport, timeout_ms=60)
    assert isinstance(attempt.error, ProviderTimeoutError)
    assert "60 ms" in str(attempt.error)  # the provider's own limit, within the 500 ms that were left
    assert attempt.cost_nanousd == ESTIMATE * PRICE_NANOUSD


async def test_a_key_that_is_not_there_makes_the_provider_unavailable_without_a_call(
    transport: ProviderTransport,
) -> None:
    async with serving(json_reply(b"{}")) as url:
        attempt = await ask(url, transport, key_env="NOT_SET")
    assert attempt.error is not None
    assert (attempt.error.kind, attempt.error.code, attempt.cost_nanousd) == ("credentials", "unavailable", 0)


async def test_the_configured_key_is_sent(transport: ProviderTransport) -> None:
    seen: list[bytes] = []

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with serving(behaviour) as url:
        await ask(url, transport, key_env="KEY")
    assert b"Bearer " + KEY.encode() in seen[0]


async def test_questions_over_the_caps_are_left_out_and_answered_in_their_place(
    transport: ProviderTransport,
) -> None:
    body = b'{"answers":{"q2":{"choice":"b"},"q4":{"choice":"a"}}}'
    wide = Question("q1", '{"hp":1}', '{"a":"A","b":"B","c":"C"}', ("a", "b", "c"))
    lone = Question("q3", '{"hp":1}', '{"a":"A"}', ("a",))
    fine = [Question(name, '{"hp":1}', '{"a":"A","b":"B"}', ("a", "b")) for name in ("q2", "q4")]
    seen: list[bytes] = []

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(behaviour) as url:
        provider = ProviderConfig(kind="systemone", base_url=url, model="m", max_options=2)
        client = ProviderClient("main", provider, transport, {})
        attempt = await client.ask(ModelRequest('{"w":1}', [wide, fine[0], lone, fine[1]]), 500)
    assert attempt.reply is not None
    outcome = [
        getattr(answer, "choice", None) or getattr(answer, "code", None) for answer in attempt.reply.answers
    ]
    assert outcome == ["unavailable", "b", "unavailable", "a"]
    assert b'"q1"' not in seen[0]
    assert b'"q3"' not in seen[0]


async def test_a_call_of_nothing_but_unaskable_questions_is_not_made(transport: ProviderTransport) -> None:
    lone = Question("q1", '{"hp":1}', '{"a":"A"}', ("a",))
    provider = ProviderConfig(kind="systemone", base_url="http://127.0.0.1:9", model="m")
    attempt = await ProviderClient("main", provider, transport, {}).ask(ModelRequest("{}", [lone]), 500)
    assert attempt.error is None
    assert attempt.cost_nanousd == 0
